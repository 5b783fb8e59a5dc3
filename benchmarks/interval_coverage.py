"""How often intervals cover the truth, and how often a table has a false mark, in simulated tables of known truth.

    python benchmarks/interval_coverage.py [--tables 1000] [--worlds WORD] [--cores 1]

A table has 20 regimes with seven losses each, all of which are equal in truth: its 120 differences to the first loss
are 0, and every mark is false. An image is right where a normal score is above 0. The score is the sum of what all
networks make of the image (standard deviation 2) and of its group, where images come in groups; a part of the loss's
own (standard deviation 1, and again for the group); the luck of the search and that of the seed, half of which all
losses with the same seed share; and chance (standard deviation 1). A luck of 0.1 moves an accuracy of 90 % by 0.7
points. A search's luck is the loss's own, but in one world half of it is that of the draws, which all losses share.

Where several studies made the same comparisons, their searches are pooled: the rows are searches or studies.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import special

from topk_platform.results.images import image_part
from topk_platform.results.intervals import interval, usual_variance
from topk_platform.results.significance import holm
from topk_platform.specs import Repeats

COLUMNS, ARMS, ALPHA = 20, 7, 0.05
IMAGE, OWN, CHANCE, FAILED = 2.0, 1.0, 1.0, 3.0

Array = np.ndarray


@dataclass(frozen=True)
class World:
    """A kind of study.

    Args:
        name: What is particular about it.
        level: The true accuracy.
        seeds: Seeds in all, ``seed`` the standard deviation of the luck of one.
        searches: 0 where nothing is searched, and ``search`` the standard deviation of the luck of one.
        common: The part of a search's variance that all losses share.
        first: The chance of a search to choose its first trial, which all searches of an arm share.
        studies: How many studies made the same comparisons, if the rows are studies; ``searches`` are those of all.
        of_study: The part of a search's variance that the searches of a study share.
        of_arm: The part of a search's variance that all searches of an arm share, as one validation split brings it.
        images: The number of test images.
        groups: In how many groups they come, of which the largest has ``unequal`` times as many as the smallest.
        failing: The chance of a seed to fail, which costs it 3 in all scores.
        arms_differ: The standard deviation of the logarithm by which luck differs between losses.
        odd: By what factor the luck of one loss in seven is larger.
    """

    name: str
    level: float = 0.9
    seeds: int = 5
    seed: float = 0.05
    searches: int = 0
    search: float = 0.0
    common: float = 0.0
    first: float = 0.0
    studies: int = 0
    of_study: float = 0.0
    of_arm: float = 0.0
    images: int = 400
    groups: int = 0
    unequal: float = 1.0
    failing: float = 0.0
    arms_differ: float = 0.0
    odd: float = 1.0

    @cached_property
    def sizes(self) -> Array:
        """The size of each group."""
        share = np.geomspace(1, self.unequal, self.groups)
        result: Array = np.maximum(np.round(self.images * share / share.sum()), 1).astype(int)
        return result

    @cached_property
    def group(self) -> Array | None:
        """The group of each image."""
        return np.repeat(np.arange(self.groups), self.sizes) if self.groups else None

    @cached_property
    def count(self) -> int:
        """The number of images, which rounding of groups changes a little."""
        return self.images if self.group is None else len(self.group)

    def scale(self, rng: np.random.Generator) -> Array:
        """Return the factor of luck for each column and arm, ``(C, A)``."""
        arms: Array = np.exp(self.arms_differ * rng.standard_normal((COLUMNS, ARMS)))
        arms[:, -1] *= self.odd
        return arms

    def drawn(self, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return every image's credit in one table, ``(C, A, S, n)``, and the true level of every arm, ``(C, A)``."""
        scale = self.scale(rng)
        image = IMAGE * rng.standard_normal((COLUMNS, 1, 1, self.count), np.float32)
        own = OWN * rng.standard_normal((COLUMNS, ARMS, 1, self.count), np.float32)
        if self.group is not None:
            image += IMAGE * rng.standard_normal((COLUMNS, 1, 1, self.groups), np.float32)[..., self.group]
            own += OWN * rng.standard_normal((COLUMNS, ARMS, 1, self.groups), np.float32)[..., self.group]
        luck = self._lucks(rng, scale)
        chance = CHANCE * rng.standard_normal((COLUMNS, ARMS, self.seeds, self.count), np.float32)
        level, truth = self._levels(scale)
        score = chance + image + own + (luck + level[:, :, None])[..., None].astype(np.float32)
        return (score > 0).astype(np.float32), truth

    @property
    def rows(self) -> int:
        """How many independent rows a mean has, but for those of seeds alone."""
        return self.studies or self.searches

    def _lucks(self, rng: np.random.Generator, scale: Array) -> Array:
        half = math.sqrt(0.5) * self.seed
        luck = half * rng.standard_normal((COLUMNS, 1, self.seeds)) + half * rng.standard_normal(
            (COLUMNS, ARMS, self.seeds)
        )
        if self.searches:
            luck = luck + self.search * self._of_searches(rng)[:, :, np.arange(self.seeds) % self.searches]
        luck = luck * scale[:, :, None]
        failed: Array = luck - FAILED * (rng.random(luck.shape) < self.failing)
        return failed

    def _of_searches(self, rng: np.random.Generator) -> Array:
        """Return the luck of each search of standard deviation 1, ``(C, A, R)``."""
        shape = COLUMNS, ARMS, self.searches
        own = 1 - self.common - self.of_study - self.of_arm
        result: Array = math.sqrt(own) * rng.standard_normal(shape)
        if self.common:
            result += math.sqrt(self.common) * rng.standard_normal((COLUMNS, 1, self.searches))
        if self.of_study:
            studies = rng.standard_normal((COLUMNS, ARMS, self.studies))
            result += math.sqrt(self.of_study) * studies[:, :, np.arange(self.searches) % self.studies]
        if self.of_arm:
            result += math.sqrt(self.of_arm) * rng.standard_normal((COLUMNS, ARMS, 1))
        if self.first:
            trial = rng.standard_normal((COLUMNS, ARMS, 1))
            result = np.where(rng.random(shape) < self.first, trial, result)
        return result

    def _levels(self, scale: Array) -> tuple[Array, Array]:
        """Return what is added to the scores of each arm, so that it has ``level`` if no seed fails; and its truth."""
        spread = 2.0 if self.groups else 1.0
        whole = spread * (IMAGE**2 + OWN**2) + CHANCE**2 + (self.seed**2 + self.search**2) * scale**2
        added = special.ndtri(self.level) * np.sqrt(whole)
        failed = special.ndtr((added - FAILED) / np.sqrt(whole))
        return added, (1 - self.failing) * self.level + self.failing * failed


Judged = tuple[float, float, float]
"""The ends of an interval, and the p-value."""


def judged(rows: Array, world: World, least: float, *, difference: bool) -> Judged:
    """Return the interval and the p-value of one mean, as a table has them.

    Args:
        rows: Every image's credit with every seed, ``(S, n)``.
        world: The kind of study.
        least: The least variance of a search's mean that is believed.
        difference: Whether the credits are differences.
    """
    rows_of_seeds = [s % world.rows for s in range(world.seeds)] if world.rows > 1 else None
    result = interval(
        dict(
            zip(
                Repeats(max(world.rows, 1)).seeds(world.seeds),
                rows.mean(1, dtype=float).tolist(),
                strict=True,
            )
        ),
        image_part(rows, searches=rows_of_seeds, clusters=world.group),
        searches=max(world.rows, 1),
        difference=difference,
        once=world.searches == 1,
        least=least,
    )
    assert result is not None
    return result.low, result.high, result.p


def least_of(arms: Sequence[Array], world: World) -> float:
    """Return the median variance of a search's mean among the arms of a column, or their differences."""
    if world.rows < 2:
        return 0.0
    means = [rows.mean(1, dtype=float) for rows in arms]
    return usual_variance([[float(m[r :: world.rows].mean()) for r in range(world.rows)] for m in means])


def counted(world: World, seed: int) -> Array:
    """Return of one table: the shares of levels and of differences covered, and whether it has a false mark.

    Levels are judged in every fifth table, for there are many in each; in the others they are NaN.
    """
    credit, truth = world.drawn(np.random.default_rng([20_261_124, seed]))
    levels, differences, p = [], [], {}
    for column, arms in enumerate(credit):
        if seed % 5 == 0:
            least = least_of(arms, world)
            for arm, rows in enumerate(arms):
                low, high, _ = judged(rows, world, least, difference=False)
                levels.append(low <= truth[column, arm] <= high)
        gaps = arms[1:] - arms[0]
        least = least_of(gaps, world)
        for arm, rows in enumerate(gaps):
            low, high, p[column, arm] = judged(rows, world, least, difference=True)
            differences.append(low <= truth[column, arm + 1] - truth[column, 0] <= high)
    return np.array(
        [np.mean(levels) if levels else np.nan, np.mean(differences), min(holm(p).values()) < ALPHA]
    )


def worlds() -> Iterator[World]:
    """Yield the rows of the table."""
    for seeds in (3, 5):
        for seed in (0.02, 0.1, 0.3):
            yield World(f"{seeds} seeds, luck {seed:g}", seeds=seeds, seed=seed)
        yield World(f"{seeds} seeds, luck 0.3, 5,000 images", seeds=seeds, seed=0.3, images=5000)
    yield World("near 100 %: 99.5 %", level=0.995)
    yield World("60 groups of images", groups=60)
    yield World("15 groups, the largest 8 times the smallest", groups=15, unequal=8)
    yield World("one seed in ten fails", failing=0.1)
    yield World("searched once, luck 0.1, 2,000 images", searches=1, search=0.1, images=2000)
    yield searched("3 searches, 1 seed each", searches=3, seeds=3)
    yield searched("3 searches, 2 seeds each, 60 groups", searches=3, seeds=6, groups=60)
    yield searched("5 searches, 1 seed each", searches=5, seeds=5)
    yield searched("2 searches, 5 seeds each", searches=2, seeds=10)
    yield searched("3 searches, all losses share half of their luck", searches=3, seeds=3, common=0.5)
    yield searched("5 searches, one in four chooses a shared first trial", searches=5, seeds=5, first=0.25)
    alike = searched("", searches=5, seeds=5, first=0.25)
    for part in (0.1, 0.25):
        name = f"the same, and all share {100 * part:.0f} % of their variance by one validation split"
        yield replace(alike, name=name, of_arm=part)
    pooled = World("", seeds=15, searches=15, search=0.3, seed=0.1)
    yield replace(pooled, name="5 replicates of 3 searches, searches as rows")
    yield replace(pooled, name="5 replicates of 3 searches, studies as rows", studies=5)
    yield replace(
        pooled, name="the same, a study's searches share half of their luck", studies=5, of_study=0.5
    )
    yield searched(
        "3 searches, luck differs by loss (sd 0.3 of its log)", searches=3, seeds=3, arms_differ=0.3
    )
    for searches in (3, 5):
        odd = World("", searches=searches, seeds=searches, search=0.03, seed=0.03, odd=20)
        yield replace(odd, name=f"{searches} searches, one loss of seven with 20-fold luck")
        name = f"{searches} searches, luck differs by loss (sd 0.8 of its log)"
        yield searched(name, searches=searches, seeds=searches, arms_differ=0.8)
    yield searched("5 searches, one loss of seven with luck 1.5", searches=5, seeds=5, odd=5)


def searched(name: str, **changes: Any) -> World:
    """Return a world in which the luck of the search is the largest source: 0.3, that of a seed 0.1."""
    return World(name, search=0.3, seed=0.1, **changes)


def measured(world: World, tables: int, run: Callable[..., Iterator[Array]] = map) -> Array:
    """Return the means of :func:`counted` over tables, in percent."""
    result: Array = 100 * np.nanmean(np.array(list(run(counted, [world] * tables, range(tables)))), 0)
    return result


def main() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--worlds", default="", help="only those whose name has this word")
    parser.add_argument("--cores", type=int, default=1)
    arguments = parser.parse_args()
    print("| world | levels covered, % | differences covered, % | tables with a false mark, % |")
    print("|" + " --- |" * 4)
    with ProcessPoolExecutor(arguments.cores) as pool:
        for world in worlds():
            if arguments.worlds in world.name:
                levels, differences, false = measured(world, arguments.tables, pool.map)
                marks = "none are given" if world.searches == 1 else f"{false:.1f}"
                print(f"| {world.name} | {levels:.1f} | {differences:.1f} | {marks} |", flush=True)


if __name__ == "__main__":
    main()
