"""Our losses beside the code of their papers' authors: time, memory and float32 errors, in one process.

    python benchmarks/peers.py --smooth-topk DIR --noised-topk DIR     # checkouts of oval-group/smooth-topk and of
                                                                       # garcinc/noised-topk, any of these
    python benchmarks/peers.py --lml DIR --difftopk DIR                # of locuslab/lml, which wants semantic_version,
                                                                       # and of Felix-Petersen/difftopk: diffsort
    python benchmarks/peers.py --torchsort                             # the package, where it is installed
    python benchmarks/peers.py --smooth-topk DIR --classes 1000 --k 5 --threads 1 --clock cpu

A step is one forward and backward pass; ours and theirs take turns, and a row has the medians, their ratio and what
one step of each holds at most. Errors are those of the gradient against float64 on the same float32 scores, relative to
each row's largest entry; of the noised hinge, whose draws differ, there is none. Theirs must be checkouts that this
torch runs. LML's layer has the loss ``-log p_y``, its solver its own accuracy of 1e-4; difftopk's network is bitonic
with 16 candidates, as ours, and dense, since its sparse one wants a build of torch_sparse. torchsort has no top-K loss:
what stands beside our soft top-K loss is how far the label's soft rank is behind K, another value of the same purpose.
Tables are Markdown, on standard output.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from losses import CLOCKS, SPREADS, Loss, peak_bytes, seconds
from torch import Tensor

from topk_losses import functional, use_backend
from topk_losses.testing.symmetric import smooth_topk_svm_rows

Gradient = Callable[[Tensor, Tensor], Tensor]
WARMING = 3
CANDIDATES = 16  # of the sorting networks


class Pair(NamedTuple):
    """One loss, ours and a peer's; ``exact`` has its gradient in float64, or is None where draws differ."""

    name: str
    ours: Loss
    theirs: Loss
    exact: Gradient | None


def pairs(classes: int, k: int, options: argparse.Namespace) -> Iterator[Pair]:
    """The pairs whose peer's checkout was given."""
    yield from hinges(classes, k, options)
    if options.lml:
        yield Pair("soft_topk_loss, logistic", _soft(k), _lml(k), _in_float64(_soft(k)))
    if options.torchsort:
        yield Pair("soft_topk_loss, and a soft rank", _soft(k), _soft_rank(k), None)
    if options.difftopk and k < CANDIDATES < classes:
        ours = _sorting(k)
        yield Pair(
            f"sorting_topk_cross_entropy, m = {CANDIDATES}", ours, _difftopk(classes, k), _in_float64(ours)
        )


def _soft(k: int) -> Loss:
    return lambda s, y: functional.soft_topk_loss(s, y, k)


def _lml(k: int) -> Loss:
    layer = importlib.import_module("lml").LML(N=k, verbose=-1)
    return lambda s, y: -layer(s).gather(1, y[:, None]).log().mean()


def _soft_rank(k: int) -> Loss:
    soft_rank = importlib.import_module("torchsort").soft_rank
    return lambda s, y: (soft_rank(-s).gather(1, y[:, None]) - k).relu().mean()


def _sorting(k: int) -> Loss:
    return lambda s, y: functional.sorting_topk_cross_entropy(s, y, k, candidates=CANDIDATES)


def _difftopk(classes: int, k: int) -> Loss:
    with contextlib.redirect_stdout(sys.stderr):  # it says at once what it does without
        module = importlib.import_module("difftopk")
    loss: Loss = module.TopKCrossEntropyLoss(
        "bitonic__non_sparse", 2.0, [0.0] * (k - 1) + [1.0], classes, CANDIDATES, distribution="cauchy"
    )
    return loss


def _in_float64(loss: Loss) -> Gradient:
    """The gradient of a loss in plain torch."""

    def gradient(scores: Tensor, target: Tensor) -> Tensor:
        leaf = scores.double().requires_grad_()
        with use_backend("torch"):
            return torch.autograd.grad(loss(leaf, target), leaf)[0]

    return gradient


def hinges(classes: int, k: int, options: argparse.Namespace) -> Iterator[Pair]:
    """The two that have a paper's own code."""
    if options.smooth_topk:
        peer = importlib.import_module("topk.svm").SmoothTopkSVM(n_classes=classes, alpha=1.0, tau=1.0, k=k)
        yield Pair(
            "smooth_topk_svm",
            lambda s, y: functional.smooth_topk_svm(s, y, k),
            peer,
            lambda s, y: smooth_topk_svm_rows(s, y, k, 1.0)[1] / len(s),
        )
    if options.noised_topk:
        noised = importlib.import_module("pytopk")
        for samples in options.samples:
            peer = noised.BalNoisedTopK(k=k, epsilon=0.2, n_sample=samples)
            yield Pair(f"noised_topk_hinge, B = {samples}", _noised(k, samples), peer, None)


def _noised(k: int, samples: int) -> Loss:
    return lambda s, y: functional.noised_topk_hinge(s, y, k, 0.2, samples)


def sample(classes: int, spread: float, batch: int) -> tuple[Tensor, Tensor]:
    """float32 scores, ready for gradients, and labels."""
    generator = torch.Generator().manual_seed(0)
    scores = spread * torch.randn(batch, classes, generator=generator)
    return scores.requires_grad_(), torch.randint(classes, (batch,), generator=generator)


def medians(pair: Pair, scores: Tensor, target: Tensor, options: argparse.Namespace) -> tuple[float, float]:
    """The medians of both, which take turns."""
    clock = CLOCKS[options.clock]
    times = [
        [seconds(loss, scores, target, clock) for loss in (pair.ours, pair.theirs)]
        for _ in range(options.repetitions + WARMING)
    ]
    ours, theirs = zip(*times[WARMING:], strict=True)
    return statistics.median(ours), statistics.median(theirs)


def error(loss: Loss, pair: Pair, scores: Tensor, target: Tensor) -> str:
    """The worst row's error of the gradient, relative to its largest entry."""
    if pair.exact is None:
        return "–"
    exact = pair.exact(scores.detach(), target)
    (result,) = torch.autograd.grad(loss(scores, target), scores)
    size = exact.abs().amax(1).clamp(min=torch.finfo(torch.float32).tiny)
    return f"{((result.double() - exact).abs().amax(1) / size).max().item():.0e}"


def row(pair: Pair, classes: int, k: int, kind: str, options: argparse.Namespace) -> str:
    """A row of the table."""
    scores, target = sample(classes, SPREADS[kind], options.batch)
    ours, theirs = medians(pair, scores, target, options)
    held = [peak_bytes(loss, scores, target) / 1e6 for loss in (pair.ours, pair.theirs)]
    errors = [error(loss, pair, scores, target) for loss in (pair.ours, pair.theirs)]
    cells = [
        classes,
        kind,
        pair.name,
        k,
        f"{1e3 * ours:.2f}",
        f"{1e3 * theirs:.2f}",
        f"**{theirs / ours:.1f}**",
    ]
    cells += [f"{held[0]:.1f} / {held[1]:.1f}", f"{held[1] / held[0]:.1f}", " / ".join(errors)]
    return f"| {' | '.join(map(str, cells))} |"


def import_peers(*folders: Path | None) -> None:
    """Let the peers' modules be imported from their checkouts."""
    sys.path[:0] = [str(folder.resolve()) for folder in folders if folder is not None]


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smooth-topk", type=Path, help="a checkout of oval-group/smooth-topk")
    parser.add_argument("--noised-topk", type=Path, help="a checkout of garcinc/noised-topk")
    parser.add_argument("--lml", type=Path, help="a checkout of locuslab/lml")
    parser.add_argument("--difftopk", type=Path, help="a checkout of Felix-Petersen/difftopk")
    parser.add_argument("--torchsort", action="store_true", help="the package torchsort is installed")
    parser.add_argument("--classes", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--k", type=int, nargs="+", default=[5, 20])
    parser.add_argument("--scores", nargs="+", choices=SPREADS, default=["trained"])
    parser.add_argument("--samples", type=int, nargs="+", default=[10], help="the noised hinge's B")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--repetitions", type=int, default=11)
    return parser.parse_args()


def main() -> None:
    """Print the table."""
    options = parse()
    given = (options.smooth_topk, options.noised_topk, options.lml, options.difftopk)
    folders = [folder for folder in given if folder]
    if not folders and not options.torchsort:
        raise SystemExit(
            "benchmarks/peers.py: name a peer's checkout: --smooth-topk, --noised-topk, --lml or --difftopk DIR, "
            "or --torchsort"
        )
    import_peers(*folders)
    torch.set_num_threads(options.threads)
    print(
        f"\nForward and backward, batch {options.batch}, {options.threads} threads, {options.clock} time, "
        f"torch {torch.__version__}\n"
    )
    print(
        "| n | scores | loss | K | ours, ms | theirs, ms | × | MB, ours / theirs | × | gradient's error |\n"
        "|---|---|---|---|---|---|---|---|---|---|"
    )
    for classes in options.classes:
        for k in options.k:
            for pair in pairs(classes, k, options):
                for kind in options.scores:
                    print(row(pair, classes, k, kind, options), flush=True)


if __name__ == "__main__":
    main()
