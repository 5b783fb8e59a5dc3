"""How often a table's 95 % intervals cover the truth, in simulated studies whose truth is known.

    python benchmarks/interval_coverage.py [--studies 10000] [--images 360]

An image is right where a normal score is above 0: what all networks make of the image (standard deviation 2), the luck
of a seed (of a search as well, where searches are repeated), and chance (standard deviation 1). The second loss shares
the images' scores but for a part of its own (standard deviation 1). The truth is the mean over new seeds and
new images. Standard errors of what is printed: 0.2 points of 10,000 studies.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from topk_platform.reports.statistics import image_part, interval
from topk_platform.reports.statistics.intervals import search_of

IMAGES_SD, OWN_SD = 2.0, 1.0


@dataclass(frozen=True)
class Setting:
    """A kind of study: n test images, S seeds in all, the standard deviation of a seed's and of a search's luck."""

    images: int
    accuracy: float
    seeds: int
    seeds_sd: float
    searches: int = 1
    searches_sd: float = 0.0
    difference: float = 0.001

    @property
    def spread(self) -> float:
        """The variance of an image's score."""
        return 1 + IMAGES_SD**2 + self.seeds_sd**2 + self.searches_sd**2


def drawn(
    setting: Setting, rng: np.random.Generator, level: float, image: np.ndarray, spread: float
) -> np.ndarray:
    """Return whether each seed has each image right, ``(S, n)``."""
    found = rng.standard_normal((setting.seeds, setting.images), dtype=np.float32) + image
    search = rng.standard_normal(setting.searches) * setting.searches_sd
    luck = rng.standard_normal(setting.seeds) * setting.seeds_sd + np.resize(search, setting.seeds)
    least = (-float(ndtri(level)) * math.sqrt(spread) - luck[:, None]).astype(np.float32)
    right: np.ndarray = (found > least).astype(np.float32)
    return right


def studies(setting: Setting, count: int) -> Iterator[tuple[np.ndarray, float, bool]]:
    """Yield the credits of ``count`` studies, of one loss and of two, with the truth."""
    rng = np.random.default_rng(20_251_122)
    for _ in range(count):
        image = (rng.standard_normal(setting.images) * IMAGES_SD).astype(np.float32)
        ours = drawn(setting, rng, setting.accuracy, image, setting.spread)
        yield ours, setting.accuracy, False
        image = image + (rng.standard_normal(setting.images) * OWN_SD).astype(np.float32)
        better = setting.accuracy + setting.difference
        yield drawn(setting, rng, better, image, setting.spread + OWN_SD**2) - ours, setting.difference, True


def measured(setting: Setting, count: int) -> list[float]:
    """Return in percent: coverage of accuracies, of Student's t over seeds, half-width; the same of differences."""
    sums = {False: np.zeros(3), True: np.zeros(3)}
    for rows, truth, difference in studies(setting, count):
        values = {seed: float(mean) for seed, mean in enumerate(rows.mean(1, dtype=float), 1)}
        of_search = [search_of(seed, setting.searches) for seed in values] if setting.searches > 1 else None
        ours = interval(
            values, image_part(rows, searches=of_search), searches=setting.searches, difference=difference
        )
        plain = interval(values)
        assert ours is not None
        assert plain is not None
        held = ours.low <= truth <= ours.high, plain.low <= truth <= plain.high
        sums[difference] += [*held, ours.half_width]
    return [100 * value / count for difference in (False, True) for value in sums[difference]]


def settings(images: int) -> Iterator[Setting]:
    """Yield the rows of the table."""
    for accuracy in (0.7, 0.95, 0.99, 0.998):
        for seeds in (3, 5):
            for seeds_sd in (0.02, 0.1, 0.3):
                yield Setting(images, accuracy, seeds, seeds_sd)
    for searches in (3, 5):
        yield Setting(images, 0.9, 3 * searches, 0.05, searches, 0.1)


def main() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--studies", type=int, default=10_000)
    parser.add_argument("--images", type=int, nargs="+", default=[360, 10_000])
    arguments = parser.parse_args()
    print("| images | accuracy, % | seeds | luck of a seed | accuracy: covered, % | t over seeds | half-width, points |"
          " difference: covered, % | t over seeds | half-width, points |")  # fmt: skip
    print("|" + " --- |" * 10)
    for images in arguments.images:
        for s in settings(images):
            seeds = f"{s.seeds}" if s.searches == 1 else f"{s.seeds} of {s.searches} searches"
            found = (f"{v:.{2 if i % 3 == 2 else 1}f}" for i, v in enumerate(measured(s, arguments.studies)))
            print(
                f"| {images} | {100 * s.accuracy:g} | {seeds} | {s.seeds_sd:g} |",
                " | ".join(found),
                "|",
                flush=True,
            )


if __name__ == "__main__":
    main()
