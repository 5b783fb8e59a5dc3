"""Time, memory and float32 errors of the losses, beside torch's cross-entropy in the same run.

    python benchmarks/losses.py                                        # everything, tens of minutes
    python benchmarks/losses.py time --classes 1000 --k 5 20           # a part
    python benchmarks/losses.py time --losses smooth_topk_svm --tau 0.01 --scores trained
    python benchmarks/losses.py time --losses noised_topk_hinge --samples 50 --classes 1000 --k 5
    python benchmarks/losses.py memory --classes 1000 --k 5
    python benchmarks/losses.py errors
    python benchmarks/losses.py first --losses smooth_topk_svm         # a process's first call: compiling, and cached
    python benchmarks/losses.py time --backend torch                   # as if nothing compiled the kernels
    python benchmarks/losses.py lines --classes 100 1000 --threads 1   # simple ones beside two lines of torch

Times are medians over repetitions, forward and backward, in which the loss and cross-entropy take turns, so that a
busy machine slows both. Memory is the most that the allocations of one forward and backward pass hold at once beyond
what was there before, from the profiler's record of every allocation; it is exact and independent of the allocator.
Tables are Markdown, on standard output.
"""

from __future__ import annotations

import argparse
import inspect
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from losses_lines import pairs
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from topk_losses import EarlyLearning, functional, use_backend
from topk_losses.testing.symmetric import smooth_topk_svm_rows

Loss = Callable[[Tensor, Tensor], Tensor]
CLOCKS = {"wall": time.perf_counter, "cpu": time.thread_time}
SPREADS = {"initial": 0.1, "trained": 3.0}
SOFT_SHAPES = ("logistic", "gaussian", "clip", "power", "midpoint")
TEMPERATURES = (10.0, 1.0, 0.3, 0.1, 0.03, 0.01, 1e-3, 1e-4)


class Case(NamedTuple):
    """A loss with its parameters, on one kind of scores."""

    loss: str
    classes: int
    k: int
    scores: str


def _takes(name: str) -> tuple[str, ...]:
    return tuple(inspect.signature(getattr(functional, name)).parameters)


LOSSES = {name: _takes(name) for name in functional.__all__ if _takes(name)[:2] == ("scores", "target")}
"""Every loss, with the names of its parameters."""


def _plain(name: str, k: int, counts: Tensor) -> Loss:
    """A loss with its own parameters as they are by default."""
    given = {key: value for key, value in (("k", k), ("class_counts", counts)) if key in LOSSES[name]}
    return partial(getattr(functional, name), **given)


def _soft(shape: str, k: int, tau: float) -> Loss:
    form = "error" if shape in ("clip", "power") else "log"
    return lambda s, y: functional.soft_topk_loss(s, y, k, tau, shape, form)


def _remembering(case: Case, batch: int) -> Loss:
    """Early-learning regularisation as training calls it: it updates its memory of the samples, and reads it."""
    module, rows = EarlyLearning(batch, case.classes), torch.arange(batch)
    return lambda s, y: module(s, y, rows)


def build(case: Case, options: argparse.Namespace) -> Loss:
    """The loss of a case as a function of scores and labels."""
    k, tau, samples = case.k, options.tau, options.samples
    counts = torch.arange(case.classes, 0, -1)
    margins = functional.uneven_margins(counts, 0.5)
    generator = torch.Generator().manual_seed(0)
    makers: dict[str, Loss] = {
        "cross_entropy": torch.nn.functional.cross_entropy,
        "smooth_topk_svm": lambda s, y: functional.smooth_topk_svm(s, y, k, tau),
        **{f"soft_topk_loss_{shape}": _soft(shape, k, tau) for shape in SOFT_SHAPES},
        "sorting_topk_cross_entropy": lambda s, y: functional.sorting_topk_cross_entropy(
            s, y, k, candidates=max(16, 1 << k.bit_length())
        ),
        "noised_topk_hinge": lambda s, y: functional.noised_topk_hinge(
            s, y, k, 0.2, samples, generator=generator
        ),
        "noised_topk_hinge_exact": lambda s, y: functional.noised_topk_hinge(s, y, k, samples=None),
        "noised_imbalanced_topk_hinge": lambda s, y: functional.noised_imbalanced_topk_hinge(
            s / 10, y, k, margins, generator=generator
        ),
        "ldam": lambda s, y: functional.ldam(s / 10, y, margins),  # on cosines, as it is meant
        "early_learning": _remembering(case, options.batch),
        "active_passive_loss_nnce": lambda s, y: functional.active_passive_loss(s, y, passive="nnce"),
    }
    return makers[case.loss] if case.loss in makers else _plain(case.loss, k, counts)


VARIANTS = (
    *(f"soft_topk_loss_{shape}" for shape in SOFT_SHAPES),
    *("noised_topk_hinge_exact", "active_passive_loss_nnce"),
)
# The unit, the loss whose shapes have rows, and logit adjustment at 1.
_NO_ROW = ("cross_entropy", "soft_topk_loss", "balanced_softmax")
ALL = (*(name for name in LOSSES if name not in _NO_ROW), *VARIANTS)
WITHOUT_K = (*(name for name in LOSSES if "k" not in LOSSES[name]), "active_passive_loss_nnce")


def sample(case: Case, batch: int) -> tuple[Tensor, Tensor]:
    """float32 scores, ready for gradients, and labels."""
    generator = torch.Generator().manual_seed(0)
    scores = SPREADS[case.scores] * torch.randn(batch, case.classes, generator=generator)
    return scores.requires_grad_(), torch.randint(case.classes, (batch,), generator=generator)


def step(loss: Loss, scores: Tensor, target: Tensor) -> None:
    """One forward and backward pass."""
    loss(scores, target).backward()  # type: ignore[no-untyped-call]
    scores.grad = None


def seconds(loss: Loss, scores: Tensor, target: Tensor, clock: Callable[[], float]) -> float:
    """The time of one forward and backward pass."""
    start = clock()
    step(loss, scores, target)
    return clock() - start


def timing(case: Case, options: argparse.Namespace) -> tuple[list[float], list[float]]:
    """Times of the loss and of cross-entropy, taking turns."""
    scores, target = sample(case, options.batch)
    return in_turns((build(case, options), torch.nn.functional.cross_entropy), scores, target, options)


def in_turns(
    losses: tuple[Loss, Loss], scores: Tensor, target: Tensor, options: argparse.Namespace
) -> tuple[list[float], list[float]]:
    """Times of two losses that take turns."""
    ours: list[float] = []
    theirs: list[float] = []
    started = time.perf_counter()
    for repetition in range(options.repetitions + 3):
        times = [seconds(loss, scores, target, CLOCKS[options.clock]) for loss in losses]
        if repetition >= 3:  # the first ones warm caches and allocators
            ours.append(times[0])
            theirs.append(times[1])
        if time.perf_counter() - started > options.limit and len(ours) >= 5:
            break
    return ours, theirs


def peak_bytes(loss: Loss, scores: Tensor, target: Tensor) -> int:
    """The most that one forward and backward pass holds at once beyond what was there, in bytes."""
    step(loss, scores, target)
    return most_held(lambda: step(loss, scores, target))


def most_held(work: Callable[[], object]) -> int:
    """The most bytes that some work holds at once beyond what was there."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        work()
    held = most = 0
    changes = [e for e in record.profiler.kineto_results.events() if e.name() == "[memory]"]
    for event in sorted(changes, key=lambda e: e.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most


def cases(options: argparse.Namespace) -> list[Case]:
    """The part of the grid that the options ask for; losses without K once."""
    return [
        Case(loss, classes, k, scores)
        for classes in options.classes
        for scores in options.scores
        for loss in options.losses
        for k in (options.k if loss not in WITHOUT_K else options.k[:1])
        if k < classes
    ]


def print_times(options: argparse.Namespace) -> None:
    """A row per case: medians, their ratio, the minima's ratio, and the repetitions."""
    print(
        f"\nForward and backward, batch {options.batch}, {options.threads} threads, {options.clock} time, "
        f"τ = {options.tau:g}\n"
    )
    print("| n | scores | loss | K | ms | cross-entropy ms | × (medians) | × (minima) | repetitions |")
    print("|---|---|---|---|---|---|---|---|---|")
    for case in cases(options):
        ours, theirs = timing(case, options)
        middle, base = statistics.median(ours), statistics.median(theirs)
        k = "–" if case.loss in WITHOUT_K else case.k
        print(
            f"| {case.classes} | {case.scores} | {case.loss} | {k} | {1e3 * middle:.2f} | {1e3 * base:.2f} "
            f"| **{middle / base:.1f}** | {min(ours) / min(theirs):.1f} | {len(ours)} |",
            flush=True,
        )


def print_lines(options: argparse.Namespace) -> None:
    """A row per simple loss: its median, that of the two lines of torch that stand in for it, and their ratio."""
    print(f"\nForward and backward, batch {options.batch}, {options.threads} threads, {options.clock} time\n")
    print("| n | loss | µs | two lines of torch, µs | × |\n|---|---|---|---|---|")
    for classes in options.classes:
        scores, target = sample(Case("", classes, 1, options.scores[0]), options.batch)
        for name, losses in pairs(classes, options.batch).items():
            ours, theirs = (statistics.median(t) for t in in_turns(losses, scores, target, options))
            row = f"{classes} | {name} | {1e6 * ours:.0f} | {1e6 * theirs:.0f} | **{ours / theirs:.2f}**"
            print(f"| {row} |", flush=True)


def print_memory(options: argparse.Namespace) -> None:
    """A row per case: the peak of one pass, and beyond cross-entropy's."""
    print(f"\nPeak memory of one forward and backward pass, batch {options.batch}, τ = {options.tau:g}\n")
    print("| n | scores | loss | K | MB | beyond cross-entropy, MB |\n|---|---|---|---|---|---|")
    for case in cases(options):
        scores, target = sample(case, options.batch)
        ours = peak_bytes(build(case, options), scores, target)
        base = peak_bytes(torch.nn.functional.cross_entropy, scores, target)
        k = "–" if case.loss in WITHOUT_K else case.k
        row = f"{case.classes} | {case.scores} | {case.loss} | {k} | {ours / 1e6:.1f} | {(ours - base) / 1e6:.1f}"
        print(f"| {row} |", flush=True)


def first_call(case: Case, options: argparse.Namespace, folder: str) -> float:
    """CPU seconds of the first forward and backward pass in a process whose compiled kernels are in a folder."""
    command = [sys.executable, __file__, "first-of", "--losses", case.loss, "--k", str(case.k)]
    command += ["--classes", str(case.classes), "--scores", case.scores, "--backend", options.backend]
    environment = {**os.environ, "TOPK_LOSSES_CACHE": folder}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)  # noqa: S603
    return float(done.stdout.split()[-1])


def print_first_of(options: argparse.Namespace) -> None:
    """The CPU seconds of this process's first pass."""
    case = cases(options)[0]
    scores, target = sample(case, options.batch)
    start = time.process_time()
    step(build(case, options), scores, target)
    print(time.process_time() - start)


def print_first(options: argparse.Namespace) -> None:
    """A row per loss: a first call in a new installation, and in every process after it."""
    print("\nFirst forward and backward pass of a process, CPU seconds, the import of torch left out\n")
    print("| loss | compiling | cached |\n|---|---|---|")
    for loss in options.losses:
        case = Case(loss, options.classes[0], options.k[0], options.scores[0])
        with tempfile.TemporaryDirectory() as folder:
            compiling, cached = (first_call(case, options, folder) for _ in range(2))
        print(f"| {loss} | {compiling:.1f} | {cached:.2f} |", flush=True)


def turning_scores(
    spread: float, offset: float, k: int, tau: float, options: argparse.Namespace
) -> tuple[Tensor, Tensor]:
    """float32 scores, half of the rows with the label's where the hinge turns: ``s_y ≈ s_[K] + K``."""
    generator = torch.Generator().manual_seed(0)
    scores = offset + spread * torch.randn(options.rows, options.error_classes, generator=generator)
    target = torch.randint(options.error_classes, (options.rows,), generator=generator)
    bar = scores.double().scatter(1, target[:, None], -torch.inf).topk(k, dim=1).values[:, -1] + k
    bar += k * tau * torch.randn(options.rows, generator=generator, dtype=torch.float64)
    half = options.rows // 2
    scores[:half] = scores[:half].scatter(1, target[:half, None], bar[:half, None].float())
    return scores, target


def errors(k: int, tau: float, options: argparse.Namespace) -> list[float]:
    """The worst over σ and offsets: loss (relative, or absolute over τ), gradient, gradient's sum, non-finite rows."""
    worst = [0.0, 0.0, 0.0, 0.0]
    for spread in (1.0, 3.0, 10.0, 30.0):
        for offset in (0.0, 10.0, -1000.0, 1000.0):
            scores, target = turning_scores(spread, offset, k, tau, options)
            expected, slope = smooth_topk_svm_rows(scores, target, k, tau)
            leaf = scores.requires_grad_()
            losses = functional.smooth_topk_svm(leaf, target, k, tau, reduction="none")
            (gradient,) = torch.autograd.grad(losses.sum(), leaf)
            error = (losses.detach().double() - expected).abs()
            # The smaller of the relative error over 1e-5 and the absolute one over 1e-6 τ: within bounds up to 1.
            share = torch.minimum(error / (1e-5 * expected), error / (1e-6 * tau))
            result = (
                share.max().item(),
                (gradient.double() - slope).abs().max().item(),
                gradient.double().sum(1).abs().max().item(),
                float((~(losses.isfinite() & gradient.isfinite().all(1))).sum()),
            )
            worst = [max(pair) for pair in zip(worst, result, strict=True)]
    return worst


def print_errors(options: argparse.Namespace) -> None:
    """A row per K and τ: the worst float32 errors against float64 in log-space on the same inputs."""
    print(
        f"\nSmooth top-K SVM in float32, n = {options.error_classes}, worst over σ in 1, 3, 10, 30 "
        "and offsets up to ±1000\n"
    )
    print(
        "| K | τ | loss, share of the bound | gradient | gradient's sum | rows not finite |\n|---|---|---|---|---|---|"
    )
    total = [0.0] * 4
    for k in options.k:
        for tau in TEMPERATURES:
            result = errors(k, tau, options)
            total = [max(pair) for pair in zip(total, result, strict=True)]
            print(
                f"| {k} | {tau:g} | {result[0]:.1e} | {result[1]:.1e} | {result[2]:.1e} | {result[3]:.0f} |",
                flush=True,
            )
    print(f"| all | all | {total[0]:.1e} | {total[1]:.1e} | {total[2]:.1e} | {total[3]:.0f} |")


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "part", nargs="*", default=["time", "memory", "errors"], help="time, memory, errors, first, lines"
    )
    parser.add_argument("--classes", type=int, nargs="+", default=[100, 1000, 10_000, 100_000])
    parser.add_argument("--k", type=int, nargs="+", default=[1, 5, 10, 20, 50])
    parser.add_argument("--scores", nargs="+", choices=SPREADS, default=list(SPREADS))
    parser.add_argument("--losses", nargs="+", choices=ALL, default=list(ALL))
    parser.add_argument("--tau", type=float, default=1.0, help="the smooth top-K SVM's temperature")
    parser.add_argument("--samples", type=int, default=10, help="the noised hinge's B")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--backend", choices=["auto", "torch", "numba"], default="auto")
    parser.add_argument(
        "--clock", choices=CLOCKS, default="wall", help="cpu: with --threads 1 on busy machines"
    )
    parser.add_argument("--repetitions", type=int, default=31)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds per case, at least 5 repetitions")
    parser.add_argument("--rows", type=int, default=8, help="rows per setting of the errors")
    parser.add_argument("--error-classes", type=int, default=1000)
    return parser.parse_args()


def main() -> None:
    """Print the tables asked for."""
    options = parse()
    torch.set_num_threads(options.threads)
    print(
        f"torch {torch.__version__}, {platform.machine()}, {os.cpu_count()} cores, "
        f"{torch.backends.cpu.get_cpu_capability()}, backend {options.backend}"
    )
    printers = {"time": print_times, "memory": print_memory, "errors": print_errors}
    printers |= {"first": print_first, "first-of": print_first_of, "lines": print_lines}
    with use_backend(options.backend):
        for part in options.part:
            printers[part](options)


if __name__ == "__main__":
    main()
