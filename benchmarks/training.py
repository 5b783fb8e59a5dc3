"""Training, in ratios measured side by side: ensembles, images a second, steps with each loss, checkpoints.

    python benchmarks/training.py                          # everything, minutes on two cores
    python benchmarks/training.py ensembles --members 50
    python benchmarks/training.py throughput losses --device cuda
    python benchmarks/training.py ensembles losses --clock cpu --threads 1     # on a busy machine

What is compared takes turns in one process, so that a busy machine slows all of it; ratios are of medians, then of
minima. Tables are Markdown, on standard output.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset
from torchvision.transforms import v2

from topk_platform import Arm, Augmentation, Loss, Model, Numerics, Recipe, Regime
from topk_platform.data import Dataset, Split, load
from topk_platform.records.networks import StoreKeeper
from topk_platform.records.storage.store import Store
from topk_platform.specs import Trial
from topk_platform.training import LOSSES, Session
from topk_platform.training.ensemble import Ensemble
from topk_platform.training.group import Group, Stopwatch
from topk_platform.training.member import Member
from topk_platform.training.run import _resume, _save
from topk_studies.recipes import SAWADA2020_RING

CLOCKS = {"wall": time.perf_counter, "cpu": time.thread_time}
INTERVAL = 30.0  # seconds between two checkpoints, by default
CROP_AND_FLIP = Augmentation(crop=4, flip=True)
ENSEMBLES = (  # what, regime, model, recipe, k
    ("ring, full batch, linear", Regime("ring", "ring"), Model("linear"), SAWADA2020_RING, 2),
    ("ring, full batch, MLP 16", Regime("ring", "ring"), Model("mlp", {"hidden": 16}), SAWADA2020_RING, 2),
    ("digits, batch 128, MLP 128", Regime("digits", "digits"), Model("mlp"), Recipe(40, batch_size=128), 3),
)
STACKED = ("cross_entropy", "topk_transition", "smooth_topk_svm", "noised_topk_hinge")
GRAPHED = (
    Model("resnet_small", {"depth": 8}, label="resnet8"),
    Model("densenet", {"growth": 40}, label="densenet40-40"),
)
COSINE = ("ldam", "noised_imbalanced_topk_hinge")

Work = Callable[[], object]


def a_trial(
    arm: tuple[Regime, Model, Recipe, int], loss: str, options: argparse.Namespace, seed: int = 1
) -> Trial:
    """A confirmation with one seed."""
    regime, model, recipe, k = arm
    return Trial(
        study="benchmark",
        arm_id="a",
        arm=Arm(regime, model, Loss(loss, head="cosine" if loss in COSINE else "linear"), k, recipe),
        topk=(1, k),
        phase="confirm",
        number=0,
        seed=seed,
        root=0,
        values={},
        dataset_fingerprint=load(regime).fingerprint,
        code_version="c",
        threads=options.threads,
        device=options.device,
    )


def seconds(work: Work, options: argparse.Namespace) -> float:
    """The time of one piece of work, the device's included."""
    clock = CLOCKS[options.clock]
    if options.device == "cuda":
        torch.cuda.synchronize()
    start = clock()
    work()
    if options.device == "cuda":
        torch.cuda.synchronize()
    return clock() - start


def turns(works: Sequence[Work], options: argparse.Namespace) -> list[list[float]]:
    """The times of each work, all taking turns; the first turn warms up and is left out."""
    times = [[seconds(work, options) for work in works] for _ in range(options.repetitions + 1)]
    return [list(column) for column in zip(*times[1:], strict=True)]


def ratios(slow: list[float], fast: list[float]) -> str:
    """The medians' quotient, and the minima's."""
    return f"**{statistics.median(slow) / statistics.median(fast):.2f}** | {min(slow) / min(fast):.2f}"


def header(title: str, *columns: str) -> None:
    """A table's title and head."""
    print(f"\n{title}\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}", flush=True)


def print_ensembles(options: argparse.Namespace) -> None:
    """An epoch of an ensemble against an epoch of each of its members alone, one after another."""
    header(
        f"An epoch of {options.members} networks: together, and one at a time in the same process",
        *("what", "loss", "together, ms", "one at a time, ms", "× (medians)", "× (minima)"),
    )
    for what, *arm, k in ENSEMBLES:
        for loss in options.losses or STACKED:
            trials = [
                a_trial((*arm, k), loss, options, seed)  # type: ignore[arg-type]
                for seed in range(1, options.members + 1)
            ]
            together = Ensemble.prepare(trials)
            alone = [Session.prepare(trial) for trial in trials]
            ours, theirs = turns([together.advance, lambda: [s.advance() for s in alone]], options)  # noqa: B023
            times = f"{1e3 * statistics.median(ours):.1f} | {1e3 * statistics.median(theirs):.1f}"
            print(f"| {what} | {loss} | {times} | {ratios(theirs, ours)} |", flush=True)


def in_memory(split: Split) -> Tensor:
    """The inputs of a split whose images are not in files."""
    assert isinstance(split.inputs, Tensor), "images in files"
    return split.inputs


class Pictures(TorchDataset[tuple[Tensor, int]]):
    """Images as torchvision's own datasets hold and give them: arrays in memory, PIL images to the transform."""

    def __init__(self, split: Split, transform: v2.Compose) -> None:
        self.arrays = in_memory(split).permute(0, 2, 3, 1).contiguous().numpy()
        self.labels = split.labels.tolist()
        self.transform = transform

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.transform(Image.fromarray(self.arrays[index])), self.labels[index]


def loader(split: Split, options: argparse.Namespace) -> DataLoader[tuple[Tensor, int]]:
    """The loop of torchvision's tutorials: PIL images, a transform of each, worker processes."""
    moments = in_memory(split).double() / 255
    transform = v2.Compose(
        [
            v2.RandomCrop(32, padding=4),
            v2.RandomHorizontalFlip(),
            v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(moments.mean((0, 2, 3)).tolist(), moments.std((0, 2, 3)).tolist()),
        ]
    )
    return DataLoader(
        Pictures(split, transform),
        batch_size=options.batch,
        shuffle=True,
        num_workers=options.workers,
        persistent_workers=options.workers > 0,
        pin_memory=options.device == "cuda",
    )


def steps(session: Session, batches: Iterable[Sequence[Tensor]]) -> None:
    """A step on each batch, which the session augments."""
    session.model.train()
    for batch in batches:
        session._step(*(part.to(session.trial.device, non_blocking=True) for part in batch))


def images(options: argparse.Namespace) -> Regime:
    """Synthetic images in CIFAR's shape."""
    each = options.images // 100
    return Regime("images", "synthetic_images", options={"train": each, "validation": 1, "test": 1})


def image_arm(options: argparse.Namespace, densenet: bool = False) -> tuple[Regime, Model, Recipe, int]:
    """The small network on a CPU; on a GPU the papers' networks, as they would be trained there."""
    cuda = options.device == "cuda"
    numerics = Numerics(bfloat16=cuda, channels_last=cuda, tf32=cuda)
    recipe = Recipe(100, batch_size=options.batch, augmentation=CROP_AND_FLIP, numerics=numerics)
    large = Model("densenet", {"growth": 40}) if densenet else Model("resnet18_small")
    return images(options), large if cuda else Model("convnet"), recipe, 5


def print_throughput(options: argparse.Namespace) -> None:
    """Epochs of steps on our batches, on the same ones ready on the device, and on a DataLoader's."""
    trial = a_trial(image_arm(options), "cross_entropy", options)
    session, given = Session.prepare(trial), Session.prepare(trial)
    given.batches.augmented = lambda inputs, labels: (inputs, labels)  # type: ignore[method-assign]
    name = trial.arm.model.name
    header(
        f"Training steps of {name}, batch {options.batch}, {options.images} images of 32×32",
        *("batches", "images/s", "share of ready tensors' (medians)", "(minima)"),
    )
    ready = list(session.batches)
    host = load(session.trial.arm.regime)
    assert isinstance(host, Dataset), "a population"
    names = ("ready tensors", "ours: uint8 on the device", f"DataLoader, {options.workers} workers")
    torchs = loader(host.train, options)
    work: list[Work] = [
        lambda: steps(given, ready),
        lambda: steps(session, session.batches.taken(0)),
        lambda: steps(given, torchs),
    ]
    turn_times = turns(work, options)
    for what, times in zip(names, turn_times, strict=True):
        rate = len(session.batches.split) / statistics.median(times)
        print(f"| {what} | {rate:.0f} | {ratios(turn_times[0], times)} |", flush=True)


def print_losses(options: argparse.Namespace) -> None:
    """A training step with each loss over one with cross-entropy, in turns."""
    arm = image_arm(options, densenet=True)
    name = "DenseNet 40-40" if options.device == "cuda" else "the small network, for want of a GPU"
    header(
        f"A training step of {name}, batch {options.batch}, 100 classes, K = 5",
        *("loss", "ms", "cross-entropy, ms", "× (medians)", "× (minima)"),
    )
    base = _on_one_batch(a_trial(arm, "cross_entropy", options), options.steps)
    for loss in options.losses or sorted(set(LOSSES) - {"cross_entropy"}):
        turn_times = turns([_on_one_batch(a_trial(arm, loss, options), options.steps), base], options)
        ours, theirs = ([t / options.steps for t in times] for times in turn_times)
        times = f"{1e3 * statistics.median(ours):.2f} | {1e3 * statistics.median(theirs):.2f}"
        print(f"| {loss} | {times} | {ratios(ours, theirs)} |", flush=True)


def _on_one_batch(trial: Trial, count: int) -> Work:
    """So many steps on a session's first batch, which it takes itself: some losses ask for the batch's rows."""
    session = Session.prepare(trial)
    return partial(steps, session, [next(session.batches.taken(0))] * count)


def print_checkpoints(options: argparse.Namespace) -> None:
    """What a checkpoint and a resumption cost, beside an epoch of CIFAR-100's 45,000 images."""
    header(
        f"Checkpoints, by default every {INTERVAL:.0f} s, on a local disk",
        *("network", "checkpoint, s", "share of the time", "resuming, s", "an epoch, s", "share of an epoch"),
    )
    for name in ("convnet", "resnet18_small"):
        regime, _, recipe, k = image_arm(options)
        trial = a_trial((regime, Model(name), recipe, k), "cross_entropy", options)
        session = Session.prepare(trial)
        first = [next(session.batches.taken(0))]
        steps(session, first)
        step = min(seconds(lambda: steps(session, first), options) for _ in range(2))  # noqa: B023
        with tempfile.TemporaryDirectory() as folder:
            keeper = StoreKeeper(Store.open(folder), 0.0)
            group = Group([Member(trial)], keeper, Stopwatch(options.device), epoch=1)
            saved = [seconds(lambda: _save(group, session), options) for _ in range(options.repetitions)]  # noqa: B023
            resumed = [
                seconds(lambda: _resume(group, Session.prepare(trial)), options)  # noqa: B023
                for _ in range(options.repetitions)
            ]
        write, again, epoch = (
            statistics.median(saved),
            statistics.median(resumed),
            step * 45_000 / options.batch,
        )
        print(
            f"| {name} | {write:.3f} | **{write / INTERVAL:.2%}** "
            f"| {again:.3f} | {epoch:.1f} | **{again / epoch:.2%}** |",
            flush=True,
        )


def print_graphs(options: argparse.Namespace) -> None:
    """Epochs with steps that are replayed as a CUDA graph, against steps whose kernels are started one by one."""
    if options.device != "cuda":
        print("\nSteps as CUDA graphs need --device cuda")
        return
    header(
        f"An epoch of {options.images} images, batch {options.batch}, bfloat16",
        *("network", "loss", "steps/s", "as CUDA graphs", "× (medians)", "× (minima)"),
    )
    for network in GRAPHED:
        for loss in options.losses or ("cross_entropy", "smooth_topk_svm", "noised_topk_hinge"):
            sessions = [
                Session.prepare(_graphed_trial(network, loss, options, graphs)) for graphs in (False, True)
            ]
            usual, graphed = turns([session.advance for session in sessions], options)
            count = sessions[0].epoch_steps
            rates = f"{count / statistics.median(usual):.0f} | {count / statistics.median(graphed):.0f}"
            print(f"| {network.label} | {loss} | {rates} | {ratios(usual, graphed)} |", flush=True)


def _graphed_trial(network: Model, loss: str, options: argparse.Namespace, graphs: bool) -> Trial:
    regime, _, recipe, k = image_arm(options)
    numerics = replace(recipe.numerics, cuda_graphs=graphs)
    return a_trial((regime, network, replace(recipe, numerics=numerics, clip_norm=1.0), k), loss, options)


PARTS = {
    "ensembles": print_ensembles,
    "graphs": print_graphs,
    "throughput": print_throughput,
    "losses": print_losses,
    "checkpoints": print_checkpoints,
}


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="*", default=list(PARTS), help=", ".join(PARTS))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--clock", choices=CLOCKS, default="wall", help="cpu: with --threads 1, but for throughput"
    )
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--members", type=int, default=10, help="networks of an ensemble")
    parser.add_argument("--losses", nargs="+", choices=LOSSES, help="by default those of each part")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--images", type=int, default=2000, help="of 100 classes; 45000 are CIFAR-100's")
    parser.add_argument("--steps", type=int, default=4, help="training steps timed at once")
    parser.add_argument("--workers", type=int, default=2, help="the DataLoader's processes")
    return parser.parse_args()


def main() -> None:
    """Print the tables asked for."""
    options = parse()
    if options.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("benchmarks/training.py: no CUDA device; --device cpu does without")
    torch.set_num_threads(options.threads)
    device = torch.cuda.get_device_name() if options.device == "cuda" else platform.machine()
    print(
        f"torch {torch.__version__}, {device}, {os.cpu_count()} cores, {options.threads} threads, "
        f"{options.clock} time, {options.repetitions} turns"
    )
    for part in options.part:
        PARTS[part](options)


if __name__ == "__main__":
    main()
