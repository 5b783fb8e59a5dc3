"""What the dearest losses take, beside the least that the plain way to them takes, and beside cross-entropy.

    python benchmarks/bounds.py                            # n = 100 and 1,000, K = 5, one thread, CPU time
    python benchmarks/bounds.py --classes 1000 --repetitions 31

Each loss is timed forward and backward. Beside it stands a part of the plain way to the same value, which such a way
cannot do without:

- noised_topk_hinge: B = 10 normals per score by the fastest generator at hand; none is looked at.
- noised_topk_hinge_exact: the normal distribution function of each score at 32 nodes, in float32; nothing is combined.
- sorting_topk_cross_entropy: the 16 largest scores.

A loss below its part is one that goes another way. All take turns; a row has minima as multiples of cross-entropy's.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import torch
from losses import CLOCKS, SPREADS, Case, build, sample, step
from torch import Tensor

from topk_losses._rows.selection import largest

SAMPLES, NODES, WIRES = 10, 32, 16
WARMING = 3


def normals(scores: Tensor) -> Callable[[], object]:
    """B normals per score by NumPy's SFC64, the generator of the kernels."""
    generator, buffers = (
        np.random.Generator(np.random.SFC64(0)),
        np.empty((SAMPLES, *scores.shape), np.float32),
    )
    return lambda: generator.standard_normal(out=buffers, dtype=np.float32)


def torchs_normals(scores: Tensor) -> Callable[[], object]:
    """The same by torch."""
    buffers = torch.empty(SAMPLES, *scores.shape)
    return buffers.normal_


def tails(scores: Tensor) -> Callable[[], object]:
    """The normal distribution function at the nodes."""
    values, out = scores.detach(), torch.empty_like(scores)

    def at_all_nodes() -> None:
        for _ in range(NODES):
            torch.erfc(values, out=out)

    return at_all_nodes


def parts(loss: str, scores: Tensor) -> list[Callable[[], object]]:
    """What the plain way cannot do without: the ways to do it."""
    values = scores.detach()
    ways: dict[str, list[Callable[[], object]]] = {
        "noised_topk_hinge": [normals(scores), torchs_normals(scores)],
        "noised_topk_hinge_exact": [tails(scores)],
        "sorting_topk_cross_entropy": [lambda: largest(values, WIRES)],
    }
    return ways[loss]


LOSSES = ("noised_topk_hinge", "noised_topk_hinge_exact", "sorting_topk_cross_entropy")


def minima(case: Case, options: argparse.Namespace) -> list[float]:
    """Of cross-entropy, the loss and the parts, which take turns; in seconds."""
    scores, target = sample(case, options.batch)
    loss = build(case, SimpleNamespace(tau=1.0, samples=SAMPLES, batch=options.batch))  # type: ignore[arg-type]
    base = torch.nn.functional.cross_entropy
    calls: list[Callable[[], object]] = [
        lambda: step(base, scores, target),
        lambda: step(loss, scores, target),
    ]
    calls += parts(case.loss, scores)
    clock, times = CLOCKS[options.clock], []
    for _ in range(options.repetitions + WARMING):
        turn = []
        for call in calls:
            start = clock()
            call()
            turn.append(clock() - start)
        times.append(turn)
    return [min(own) for own in zip(*times[WARMING:], strict=True)]


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--classes", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--scores", nargs="+", choices=SPREADS, default=["trained", "initial"])
    parser.add_argument("--losses", nargs="+", choices=LOSSES, default=list(LOSSES))
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clock", choices=CLOCKS, default="cpu")
    parser.add_argument("--repetitions", type=int, default=21)
    return parser.parse_args()


def main() -> None:
    """Print the table."""
    options = parse()
    torch.set_num_threads(options.threads)
    print("| n | scores | loss | K | × cross-entropy | the part alone |\n|---|---|---|---|---|---|")
    for classes in options.classes:
        for kind in options.scores:
            for loss in options.losses:
                base, own, *part = minima(Case(loss, classes, options.k, kind), options)
                print(
                    f"| {classes} | {kind} | {loss} | {options.k} | {own / base:.1f} | {min(part) / base:.1f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
