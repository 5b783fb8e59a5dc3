"""Images per second of the stream that training reads, against the decoder alone and against torch's DataLoader.

    python benchmarks/loading.py [--images 512] [--batch 64] [--repeat 5]

Files are JPEGs of 500×375 pixels, as ImageNet's are on average, in ImageNet's layout; what comes out are squares of
224 pixels at random places of images whose shorter side is 256. All ways take turns, and the best time of each
counts. "decoder" is the same threads decoding, scaling and cutting the same files into nothing: the limit.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset
from torchvision.transforms import v2

from topk_platform.data import Images
from topk_platform.data.images.decoding import crop, decoders, pool
from topk_platform.data.images.in_files import scaled
from topk_platform.data.images.own_files import from_folders

SIZE, RESIZE = 224, 256


def write(root: Path, count: int) -> None:
    """Write photographs of a kind: a smooth picture with grain, about 75 kB each."""
    generator = np.random.default_rng(0)
    (root / "train" / "n01440764").mkdir(parents=True)
    for number in range(count):
        coarse = Image.fromarray(generator.integers(0, 256, (40, 50, 3), dtype=np.uint8))
        smooth = np.asarray(coarse.resize((500, 375), Image.Resampling.BICUBIC)).astype(int)
        pixels = (smooth + generator.integers(-12, 13, smooth.shape)).clip(0, 255).astype(np.uint8)
        path = root / "train" / "n01440764" / f"n01440764_{number}.JPEG"
        Image.fromarray(pixels).save(path, quality=90)


class Usual(TorchDataset[Tensor]):
    """What a torchvision script does."""

    def __init__(self, images: Images) -> None:
        self.images = images
        self.transform = v2.Compose([v2.Resize(RESIZE), v2.RandomCrop(SIZE), v2.PILToTensor()])

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, row: int) -> Tensor:
        with Image.open(self.images.files.path(row)) as image:
            pixels: Tensor = self.transform(image.convert("RGB"))
        return pixels


def ways(images: Images, batch: int) -> dict[str, Callable[[], object]]:
    """Return the ways, each of one pass over all images."""
    order = torch.randperm(len(images))
    places = torch.rand((len(images), 2))
    rows = torch.split(order, batch)
    loader = DataLoader(
        Usual(images), batch_size=batch, shuffle=True, num_workers=decoders(), persistent_workers=True
    )

    def one(row: int) -> None:
        crop(scaled(images.files.path(row), RESIZE), SIZE, (0.5, 0.5))

    return {
        "decoder": lambda: list(pool().map(one, order.tolist(), chunksize=4)),
        "stream": lambda: [len(part) for part in images.stream(rows, torch.split(places, batch))],
        "DataLoader": lambda: [len(part) for part in loader],
    }


def rates(chosen: dict[str, Callable[[], object]], count: int, repeat: int) -> dict[str, list[float]]:
    """Return images per second of each way at each turn."""
    times: dict[str, list[float]] = {name: [] for name in chosen}
    for _ in range(repeat):
        for name, run in chosen.items():
            start = time.perf_counter()
            run()
            times[name].append(count / (time.perf_counter() - start))
    return times


def print_rates(title: str, rates_of: dict[str, list[float]]) -> None:
    """Print the best of each way, its share of the decoder's best, and the median share of the decoder's same turn."""
    print(title)
    for name, values in rates_of.items():
        share = max(values) / max(rates_of["decoder"])
        turns = np.median([a / b for a, b in zip(values, rates_of["decoder"], strict=True)])
        print(f"  {name:12} {max(values):8.0f} images/s  {share:6.1%} of the decoder, by turns {turns:6.1%}")


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=512)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message=".*worker processes.*")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TOPK_DATA"] = folder
        os.environ.pop("TOPK_CACHE", None)
        root = Path(folder) / "imagenet"
        write(root, options.images)
        files = from_folders(root, {"train": "train"})
        images = Images(files, torch.arange(len(files)), SIZE, RESIZE)
        chosen = ways(images, options.batch)
        rates(chosen, len(images), 1)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print_rates(f"{decoders()} threads, from JPEG", rates(chosen, len(images), options.repeat))
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
        print(f"  memory at its highest grew by {grown / 1024:.0f} MiB after the first pass")
        os.environ["TOPK_CACHE"] = str(Path(folder) / "cache")
        kept = {name: run for name, run in chosen.items() if name != "DataLoader"}
        rates(kept, len(images), 1)
        print_rates("the same, scaled images kept", rates(kept, len(images), options.repeat))


if __name__ == "__main__":
    main()
