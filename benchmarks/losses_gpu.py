"""Times of the losses with CUDA kernels, beside torch's cross-entropy in the same run, and the bandwidth reached.

    python benchmarks/losses_gpu.py                                    # everything, some minutes
    python benchmarks/losses_gpu.py --losses smooth_topk_svm --classes 1000 --dtypes bfloat16

A step is one forward and backward pass. Its time is taken twice, with CUDA events, as the median over repetitions in
which the loss and cross-entropy take turns: *called* from Python, a number of steps in a row, where small batches
wait for the launches; and *replayed* as a CUDA graph, which is the device's own time. The bandwidth's share is that
of the bytes that a step cannot do without (scores read once by the noised hinge, twice by the others, and their
gradient written) over the replayed time, against what a copy of a large tensor reaches in the same run.
The table is Markdown, on standard output.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from topk_losses import functional

Loss = Callable[[Tensor, Tensor], Tensor]
Step = Callable[[], object]
SPREADS = {"initial": 0.1, "trained": 3.0}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
SHAPES = ("logistic", "laplace", "gaussian", "clip", "power", "midpoint")
SOFT = tuple(f"soft_topk_{shape}" for shape in SHAPES)
LOSSES = ("smooth_topk_svm", "noised_topk_hinge", SOFT[0], "noised_imbalanced_topk_hinge", *SOFT[1:])
USUAL = 3  # losses, the first
READ_ONCE = {"noised_topk_hinge", "noised_imbalanced_topk_hinge"}
COPIED = 2**30  # bytes


class Case(NamedTuple):
    """A loss on one kind of scores."""

    loss: str
    classes: int
    batch: int
    dtype: str
    scores: str


def build(name: str, classes: int, options: argparse.Namespace) -> Loss:
    """The loss as a function of scores and labels."""
    k, samples = options.k, options.samples
    margins = functional.uneven_margins(torch.arange(classes, 0, -1), 0.5).cuda()
    if name in SOFT:
        shape = SHAPES[SOFT.index(name)]
        return lambda s, y: functional.soft_topk_loss(s, y, k, options.tau, shape, "error")
    makers: dict[str, Loss] = {
        "smooth_topk_svm": lambda s, y: functional.smooth_topk_svm(s, y, k, options.tau),
        "noised_topk_hinge": lambda s, y: functional.noised_topk_hinge(s, y, k, options.epsilon, samples),
        "noised_imbalanced_topk_hinge": lambda s, y: functional.noised_imbalanced_topk_hinge(
            s, y, k, margins, options.epsilon, samples
        ),
    }
    return makers[name]


def sample(case: Case) -> tuple[Tensor, Tensor]:
    """Scores, ready for gradients, and labels, on the device."""
    generator = torch.Generator("cuda").manual_seed(0)
    shape = (case.batch, case.classes)
    scores = SPREADS[case.scores] * torch.randn(shape, generator=generator, device="cuda")
    target = torch.randint(case.classes, shape[:1], generator=generator, device="cuda")
    return scores.to(DTYPES[case.dtype]).requires_grad_(), target


def microseconds(step: Step, steps: int) -> float:
    """The time of a step, of some in a row."""
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    for _ in range(steps):
        step()
    stop.record()
    stop.synchronize()
    return float(1e3 * start.elapsed_time(stop) / steps)


def taking_turns(pair: tuple[Step, Step], options: argparse.Namespace) -> tuple[float, float]:
    """The medians of two steps' times."""
    for step in pair:
        microseconds(step, options.steps)
    times = [[microseconds(step, options.steps) for step in pair] for _ in range(options.repetitions)]
    ours, theirs = zip(*times, strict=True)
    return statistics.median(ours), statistics.median(theirs)


def step_of(loss: Loss, scores: Tensor, target: Tensor) -> Step:
    """One forward and backward pass."""
    return lambda: torch.autograd.grad(loss(scores, target), scores)


def replayed(step: Step) -> Step:
    """The same as a CUDA graph, after steps on a stream of their own that compile and allocate."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def copy_bandwidth() -> float:
    """Bytes per second that a copy reads and writes."""
    source = torch.empty(COPIED, dtype=torch.uint8, device="cuda")
    copy = torch.empty_like(source)
    times = [microseconds(lambda: copy.copy_(source), 10) for _ in range(10)]
    return 2 * COPIED / (1e-6 * statistics.median(times))


def measure(case: Case, bandwidth: float, options: argparse.Namespace) -> str:
    """The case's row."""
    scores, target = sample(case)
    pair = (
        step_of(build(case.loss, case.classes, options), scores, target),
        step_of(torch.nn.functional.cross_entropy, scores, target),
    )
    called = taking_turns(pair, options)
    alone = taking_turns((replayed(pair[0]), replayed(pair[1])), options)
    share = (2 if case.loss in READ_ONCE else 3) * scores.nbytes / (1e-6 * alone[0]) / bandwidth
    cells = [case.classes, case.batch, case.dtype, case.scores, case.loss]
    for ours, theirs in (called, alone):
        cells += [f"{ours:.1f}", f"{theirs:.1f}", f"**{ours / theirs:.2f}**"]
    return f"| {' | '.join(map(str, [*cells, f'{share:.0%}']))} |"


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--classes", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--batch", type=int, nargs="+", default=[256, 1024, 4096])
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=["float32", "bfloat16"])
    parser.add_argument("--scores", nargs="+", choices=SPREADS, default=list(SPREADS))
    parser.add_argument("--losses", nargs="+", choices=LOSSES, default=list(LOSSES[:USUAL]))
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument(
        "--tau", type=float, default=1.0, help="the smooth top-K SVM's and the soft top-K losses' temperature"
    )
    parser.add_argument("--epsilon", type=float, default=0.2)
    parser.add_argument("--samples", type=int, default=10, help="the noised hinges' B")
    parser.add_argument("--steps", type=int, default=20, help="steps between two events")
    parser.add_argument("--repetitions", type=int, default=21)
    return parser.parse_args()


def main() -> None:
    """Print the table."""
    options = parse()
    if not torch.cuda.is_available():
        raise SystemExit("benchmarks/losses_gpu.py: no CUDA device, and it is CUDA kernels that it times")
    bandwidth = copy_bandwidth()
    print(
        f"torch {torch.__version__}, {torch.cuda.get_device_name()}, copies reach {bandwidth / 1e9:.0f} GB/s\n"
        f"\nForward and backward, K = {options.k}, τ = {options.tau:g}, ε = {options.epsilon:g}, "
        f"B = {options.samples}; times in µs\n"
    )
    print(
        "| n | batch | scores' type | scores | loss | called | cross-entropy | × | replayed | cross-entropy "
        "| × | bandwidth |\n|---|---|---|---|---|---|---|---|---|---|---|---|"
    )
    grid = product(options.classes, options.batch, options.dtypes, options.scores, options.losses)
    for classes, batch, dtype, scores, loss in grid:
        print(measure(Case(loss, classes, batch, dtype, scores), bandwidth, options), flush=True)


if __name__ == "__main__":
    main()
