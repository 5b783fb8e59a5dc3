"""The command that measures how accurate a study's networks are if the number of candidates varies by image."""

from __future__ import annotations

from collections import defaultdict
from typing import Annotated

import typer

from topk_platform.cli import options
from topk_platform.cli.consoles import print_rows, say
from topk_platform.cli.studies import requested_study
from topk_platform.results.cardinality import TABLE, CardinalityPoint
from topk_platform.serving.cardinality import PENALTIES
from topk_platform.serving.cardinality import cardinality as measure_cardinality

__all__ = ["cardinality"]


def cardinality(
    study: options.Study,
    penalty: Annotated[
        list[float] | None,
        typer.Option(
            "--penalty",
            help=f"The price of a large set, in misses; several times for several; by default "
            f"{', '.join(f'{value:g}' for value in PENALTIES)}.",
        ),
    ] = None,
    growth: Annotated[
        str, typer.Option("--growth", help="log or linear: how the price grows with the set's size.")
    ] = "log",
    only: options.Only = None,
    data: options.Data = None,
    store: options.Store = "runs",
    searches: options.Searches = None,
    trials: options.Trials = None,
    seeds: options.Seeds = None,
    smoke: options.Smoke = False,
    json: options.Json = False,
) -> None:
    """Train networks that choose how many candidates an image gets, on a study's confirmed networks, and test them.

    Easy images get 1 candidate, hard ones 2, 4 or 8. A penalty is the price of 8 candidates in misses: a larger one
    gives smaller sets. `topk plot STUDY cardinality` draws accuracy against the mean number of candidates.

    Example: topk cardinality letters_quick --only 'noise-0.8/*'
    """
    requested = requested_study(study, smoke, store=store, searches=searches, trials=trials, seeds=seeds)
    points = measure_cardinality(
        requested, store=store, penalties=penalty or PENALTIES, growth=growth, only=only, data=data
    )
    if json:
        print_rows([vars(point) for point in points])
        return
    for (arm, kind, value), same in _grouped(points).items():
        size = sum(point.cardinality for point in same) / len(same)
        accuracy = sum(point.accuracy for point in same) / len(same)
        what = f"{value:g} candidates" if kind == "fixed" else f"penalty {value:g}"
        say(f"{arm}, {what}: {accuracy:.2%} with {size:.2f} candidates on average (n = {len(same)})")
    say(f"{len(points)} points in {TABLE} of the study's folder")


def _grouped(points: list[CardinalityPoint]) -> dict[tuple[str, str, float], list[CardinalityPoint]]:
    groups: dict[tuple[str, str, float], list[CardinalityPoint]] = defaultdict(list)
    for point in points:
        groups[point.arm, point.kind, point.value].append(point)
    return groups
