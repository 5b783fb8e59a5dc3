"""Images per second of features and of heads, beside timm's and torchvision's own loops.

    python benchmarks/features.py [--images 192] [--pixels 128] [--repeat 5] [--threads 1]
    python benchmarks/features.py --clock cpu     # on a busy machine: CPU seconds, loaders without worker processes

Files are JPEGs of 500×375 pixels in folders of classes. Features: EfficientNet-Lite0 by ``features_of`` of the dataset
``image_folder``, which also hashes pixels and keeps the features; by timm's ``create_loader`` and a loop; and by
torchvision's transforms, a ``DataLoader`` and a loop. Heads: an epoch over features of 1,280 numbers, 100 classes,
batches of 256, by the platform's session, and by a plain loop of torch. All ways take turns; the best time of each
counts.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from timm.data import create_dataset, create_loader
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from topk_platform import Arm, Loss, Model, Recipe, Regime
from topk_platform.data import Dataset, data_at, from_tensors, image_folder, load
from topk_platform.data.images.backbones import Backbone, load_backbone
from topk_platform.data.images.features import features_of
from topk_platform.specs import Trial
from topk_platform.training import Session

FEATURES, CLASSES, ROWS, BATCH = 1280, 100, 10_000, 256
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
Way = Callable[[], object]


def write(root: Path, count: int) -> None:
    """Write smooth pictures with grain, in four classes."""
    generator = np.random.default_rng(0)
    for number in range(count):
        coarse = Image.fromarray(generator.integers(0, 256, (40, 50, 3), dtype=np.uint8))
        path = root / "train" / f"class{number % 4}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse.resize((500, 375), Image.Resampling.BICUBIC).save(path, quality=90)


def ours(folder: Path, backbone: Backbone) -> Dataset:
    """Decode, compute and keep, in a cache that is empty."""
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TOPK_CACHE"] = cache
        with data_at(folder):
            return features_of(image_folder("photos", backbone.pixels), backbone)


def by_loop(batches: Iterable[tuple[Tensor, Tensor]], network: nn.Module) -> Tensor:
    """Run the network over normalised batches."""
    with torch.inference_mode():
        return torch.cat([network(images.to(memory_format=torch.channels_last)) for images, _ in batches])


def feature_ways(folder: Path, pixels: int, workers: int) -> dict[str, Way]:
    """Return the ways to features, each of one pass over all images."""
    backbone, root = load_backbone("efficientnet_lite0", pixels), folder / "photos" / "train"
    mean, deviation = (tuple(v.flatten().tolist()) for v in (backbone.mean, backbone.deviation))
    scale = [
        v2.Resize(pixels),
        v2.CenterCrop(pixels),
        v2.PILToTensor(),
        v2.ToDtype(torch.float32, scale=True),
    ]
    usual = ImageFolder(root, v2.Compose([*scale, v2.Normalize(mean, deviation)]))
    loader = DataLoader(usual, batch_size=64, num_workers=workers, persistent_workers=workers > 0)
    timms = create_loader(
        create_dataset("", str(root)),
        input_size=(3, pixels, pixels),
        batch_size=64,
        use_prefetcher=False,
        mean=mean,
        std=deviation,
        crop_pct=1.0,
        num_workers=workers,
        device=torch.device("cpu"),
    )
    return {
        "topk": lambda: ours(folder, backbone),
        "timm": lambda: by_loop(timms, backbone.network),
        "torchvision": lambda: by_loop(loader, backbone.network),
    }


def made_features() -> Dataset:
    """Features of a kind: half of them zero, ten times as many samples in training as in each other split."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn((ROWS, FEATURES), generator=generator).relu()
    return from_tensors((inputs, torch.arange(ROWS) % CLASSES), validation=0.1, test=0.1)


def a_session(loss: str, threads: int) -> Session:
    """The platform's training of a linear head."""
    regime = Regime("features", "features:made_features")
    arm = Arm(regime, Model("feature_head"), Loss(loss), 5, Recipe(100, batch_size=BATCH))
    return Session.prepare(
        Trial(
            study="benchmark",
            arm_id="a",
            arm=arm,
            topk=(1, 5),
            phase="search",
            number=0,
            seed=1,
            root=0,
            values={},
            dataset_fingerprint=load(regime).fingerprint,
            code_version="c",
            threads=threads,
        )
    )


def plain_epoch(data: Dataset, net: nn.Module, optimiser: torch.optim.Optimizer) -> float:
    """An epoch as a tutorial writes it."""
    total = 0.0
    for rows in torch.split(torch.randperm(len(data.train)), BATCH):
        loss = nn.functional.cross_entropy(net(data.train.tensor[rows]), data.train.labels[rows])
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        total += loss.item()
    return total


def head_ways(threads: int) -> dict[str, Way]:
    """Return the ways to train a head, each of one epoch."""
    data, net = made_features(), nn.Linear(FEATURES, CLASSES)
    optimiser = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9, weight_decay=1e-4, nesterov=True)
    losses = ("cross_entropy", "smooth_topk_svm", "noised_topk_hinge")
    sessions = {f"topk, {loss}": a_session(loss, threads) for loss in losses}
    ways: dict[str, Way] = {"plain, cross_entropy": partial(plain_epoch, data, net, optimiser)}
    return ways | {name: partial(session.advance, lambda: False) for name, session in sessions.items()}


def show(title: str, ways: dict[str, Way], count: int, options: argparse.Namespace) -> None:
    """Print the best rate of each way, beside the first one's."""
    rates: dict[str, list[float]] = {name: [] for name in ways}
    clock = CLOCKS[options.clock]
    for _ in range(options.repeat):
        for name, way in ways.items():
            start = clock()
            way()
            rates[name].append(count / (clock() - start))
    first = next(iter(rates.values()))
    print(
        f"{title}\n\n| | images/s | of the first, best | of the first, median of turns |\n|---|---|---|---|"
    )
    for name, values in rates.items():
        turns = float(np.median([one / other for one, other in zip(values, first, strict=True)]))
        print(f"| {name} | {max(values):,.0f} | {max(values) / max(first):.2f} | {turns:.2f} |")
    print()


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in (("images", 192), ("pixels", 128), ("repeat", 5), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*worker processes.*")
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "photos", options.images)
        ways = feature_ways(Path(folder), options.pixels, cores if options.clock == "wall" else 0)
        for way in ways.values():
            way()
        show(f"Features at {options.pixels} pixels, {cores} cores", ways, options.images, options)
    torch.set_num_threads(options.threads)
    rows = ROWS - 2 * ROWS // 10
    show(f"A linear head, {options.threads} thread(s)", head_ways(options.threads), rows, options)


if __name__ == "__main__":
    main()
