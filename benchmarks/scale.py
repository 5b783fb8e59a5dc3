"""What a training step and scoring cost with thousands of classes: head and losses apart, and what helps.

    python benchmarks/scale.py step --threads 1 --clock cpu       # 1,006 to 100,000 classes
    python benchmarks/scale.py scoring                            # time and memory of scoring a split
    python benchmarks/scale.py share --smooth-topk DIR --noised-topk DIR   # each loss's share of a step, and the peers'

A step is that of an MLP on 784 numbers: its body and head forward, the loss, both backward, and SGD with momentum.
``rest`` is all of it but the loss. Parts take turns, and rows have minima, because the machine may be shared; memory is
the most that the allocations of a pass hold at once, from the profiler's record. The smooth SVM's checkout wants the
package future. Tables are Markdown.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

import torch
from losses import CLOCKS, Loss, most_held, step
from peers import hinges, import_peers
from torch import Tensor, nn

from topk_losses import functional, use_backend
from topk_platform import Recipe
from topk_platform.data import Split
from topk_platform.metrics import Scorer
from topk_platform.training.scoring import score

INPUTS = 784
Work = Callable[[], object]


class Network:
    """A body, a head, and their optimiser, with a batch.

    Args:
        classes: L.
        options: The command line's: batch, features and threads.
        bfloat16: Whether the network runs under autocast.
    """

    def __init__(self, classes: int, options: argparse.Namespace, *, bfloat16: bool = False) -> None:
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(INPUTS, options.features), nn.ReLU())
        self.head = nn.Linear(options.features, classes)
        self.optimizer = torch.optim.SGD(self.parameters, 0.01, momentum=0.9, nesterov=True)
        self.inputs = torch.randn(options.batch, INPUTS)
        self.target = torch.randint(classes, (options.batch,))
        self.slope = torch.randn(options.batch, classes) / options.batch / classes
        self.bfloat16 = bfloat16

    @property
    def parameters(self) -> list[nn.Parameter]:
        """The weights of the body and the head."""
        return [*self.body.parameters(), *self.head.parameters()]

    def precision(self) -> AbstractContextManager[object]:
        """Autocast to bfloat16, or nothing."""
        return torch.autocast("cpu", torch.bfloat16) if self.bfloat16 else nullcontext()

    def rest(self) -> None:
        """A step without its loss, whose gradient is given."""
        self.optimizer.zero_grad()
        with self.precision():
            scores = self.head(self.body(self.inputs))
        scores.float().backward(self.slope)
        self.optimizer.step()

    def head_alone(self) -> None:
        """The head forward and backward, and its optimiser."""
        self.optimizer.zero_grad()
        with self.precision():
            scores = self.head(torch.relu(self.inputs[:, : self.head.in_features]).requires_grad_())
        scores.float().backward(self.slope)
        self.optimizer.step()

    @torch.no_grad()
    def scores(self) -> Tensor:
        """The batch's scores, as large as those of a trained network, ready for gradients."""
        return (3 * torch.randn(len(self.inputs), self.head.out_features)).requires_grad_()


def minima(works: Sequence[Work], options: argparse.Namespace) -> list[float]:
    """The least time of each work; they take turns, after one to warm up."""
    clock, least = CLOCKS[options.clock], [float("inf")] * len(works)
    for turn in range(options.repetitions + 1):
        for index, work in enumerate(works):
            start = clock()
            work()
            if turn:
                least[index] = min(least[index], clock() - start)
    return least


def own_losses(classes: int, k: int) -> dict[str, Loss]:
    """Our losses that a user of many classes would compare."""
    counts = torch.arange(classes, 0, -1)
    generator = torch.Generator().manual_seed(0)
    return {
        "smooth_topk_svm": lambda s, y: functional.smooth_topk_svm(s, y, k),
        "noised_topk_hinge": lambda s, y: functional.noised_topk_hinge(s, y, k, 0.2, 10, generator=generator),
        "topk_transition": lambda s, y: functional.topk_transition(s, y, k),
        "topk_hinge": lambda s, y: functional.topk_hinge(s, y, k),
        "topk_entropy": lambda s, y: functional.topk_entropy(s, y, k),
        "logit_adjusted": lambda s, y: functional.logit_adjusted(s, y, counts),
    }


def print_step(options: argparse.Namespace) -> None:
    """A row per number of classes: the head's time, and each loss's as a multiple of it."""
    names = ("cross_entropy", *own_losses(1000, options.k))
    print(f"\nTraining step, {describe(options)}: the head, and what each loss takes beside it\n")
    columns = ("head, ms", "bf16 / float32", "body / head", *names, "head, MB", "cross_entropy, MB")
    print(f"| classes | {' | '.join(columns)} |\n{'|---' * (len(columns) + 1)}|")
    for classes in options.classes:
        network, half = Network(classes, options), Network(classes, options, bfloat16=True)
        scores, losses = network.scores(), own_losses(classes, options.k)
        alone = [partial(step, nn.functional.cross_entropy, scores, network.target)]
        alone += [partial(step, loss, scores, network.target) for loss in losses.values()]
        head, bf16, rest, *times = minima(
            [network.head_alone, half.head_alone, network.rest, *alone], options
        )
        shares = " | ".join(f"{time / head:.2f}" for time in times)
        held = f"{most_held(network.head_alone) / 1e6:.0f} | {most_held(alone[0]) / 1e6:.0f}"
        print(
            f"| {classes:,} | {1e3 * head:.1f} | {bf16 / head:.2f} | {max(rest - head, 0) / head:.2f} | {shares} "
            f"| {held} |",
            flush=True,
        )


def print_scoring(options: argparse.Namespace) -> None:
    """A row per number of classes: accuracies alone and with the log-likelihood."""
    print(f"\nScoring {options.samples:,} samples, {describe(options)}\n")
    print("| classes | measures | s | MB |\n|---|---|---|---|")
    for classes in options.classes:
        network = Network(classes, options)
        count = min(options.samples, int(options.most_scores // classes))
        split = Split(torch.randn(count, INPUTS), torch.randint(classes, (count,)))
        groups = tuple(torch.arange(classes) % 3 == number for number in range(3))
        for measures in ((), ("nll",)):
            given = (
                nn.Sequential(network.body, network.head),
                split,
                None,
                Recipe(1),
                "cpu",
                Scorer((1, 5, 10), (), groups, measures),
            )
            work = partial(score, *given)
            (seconds,) = minima([work], options)
            print(
                f"| {classes:,} (N = {count:,}) | {'top-k' if not measures else 'top-k, nll'} | {seconds:.2f} "
                f"| {most_held(work) / 1e6:,.0f} |",
                flush=True,
            )


def rows_of_share(options: argparse.Namespace) -> Iterator[tuple[str, str, Loss]]:
    """Each loss with whose code it is."""
    classes, k = options.classes[0], options.k
    yield "cross_entropy", "torch", nn.functional.cross_entropy
    for name, loss in own_losses(classes, k).items():
        yield name, "ours", loss
        yield name, "ours in plain torch", _in_plain_torch(loss)
    for pair in hinges(classes, k, options):
        yield pair.name, "its authors'", pair.theirs


def _in_plain_torch(loss: Loss) -> Loss:
    def plain(scores: Tensor, target: Tensor) -> Tensor:
        with use_backend("torch"):
            return loss(scores, target)

    return plain


def print_share(options: argparse.Namespace) -> None:
    """A row per loss and code: its time over the rest of a step's, and its share of the step."""
    options.classes, options.samples = options.classes[:1], [10]
    network = Network(options.classes[0], options)
    scores, rows = network.scores(), list(rows_of_share(options))
    works = [partial(step, loss, scores, network.target) for _, _, loss in rows]
    rest, *times = minima([network.rest, *works], options)
    print(f"\nA loss's share of a training step, {options.classes[0]:,} classes, {describe(options)}\n")
    print(f"The rest of the step takes {1e3 * rest:.1f} ms.\n")
    print("| loss | code | ms | share of the step | MB |\n|---|---|---|---|---|")
    for (name, code, _), time, work in zip(rows, times, works, strict=True):
        share = time / (time + rest)
        print(
            f"| {name} | {code} | {1e3 * time:.1f} | {share:.0%} | {most_held(work) / 1e6:.0f} |", flush=True
        )


def describe(options: argparse.Namespace) -> str:
    """The sizes and the machine's load in words."""
    return (
        f"batch {options.batch}, {options.features} features, K = {options.k}, {options.threads} threads, "
        f"{options.clock} time, {options.repetitions} turns, load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores"
    )


PARTS = {"step": print_step, "scoring": print_scoring, "share": print_share}


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--smooth-topk", type=Path, help="a checkout of oval-group/smooth-topk")
    parser.add_argument("--noised-topk", type=Path, help="a checkout of garcinc/noised-topk")
    parser.add_argument("--classes", type=int, nargs="+")
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--features", type=int, default=128, help="how many numbers the head gets")
    parser.add_argument(
        "--samples", type=int, default=8 * 1337, help="to score; the network scores 1,337 at once"
    )
    parser.add_argument(
        "--most-scores", type=float, default=3e8, help="fewer samples are scored beyond this N × L"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--clock", choices=CLOCKS, default="cpu", help="cpu: with one thread, on busy machines"
    )
    parser.add_argument("--repetitions", type=int, default=7)
    return parser.parse_args()


def main() -> None:
    """Print the table of a part."""
    options = parse()
    options.classes = options.classes or (
        [2965] if options.part == "share" else [1006, 2965, 20_000, 100_000]
    )
    import_peers(options.smooth_topk, options.noised_topk)
    torch.set_num_threads(options.threads)
    PARTS[options.part](options)


if __name__ == "__main__":
    main()
