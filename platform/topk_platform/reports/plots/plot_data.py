"""The data that plots are drawn from, and the errors for studies that have nothing to draw."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from topk_platform.errors import UserError
from topk_platform.records import ArmHistory, Row, read_guesses
from topk_platform.reports.plots.style import OTHERS, Look, looks
from topk_platform.results.cells import Cell
from topk_platform.results.from_store import Held
from topk_platform.results.table import Table, row_and_column
from topk_platform.specs import Arm, Study, less_is_better

__all__ = [
    "NothingToPlotError",
    "Plotted",
    "RunGuesses",
    "UnsuitedStudyError",
]

_CROWD, _NAMED = 16, 8  # with more than 16 rows, only the baseline and 8 other losses are named


class NothingToPlotError(UserError):
    """There is nothing to draw for a kind of plot; the message says why."""


class UnsuitedStudyError(NothingToPlotError):
    """A kind of plot does not suit the study's design: it could draw none of the study's results."""


class RunGuesses(NamedTuple):
    """A confirmed run's guesses for its test images.

    Attributes:
        arm: Its arm.
        seed: Its seed.
        images: The test split's fingerprint.
        labels: The true class of each image, ``(N,)``.
        guesses: The K guesses, best first, ``(N, K)``.
    """

    arm: Arm
    seed: int
    images: str
    labels: npt.NDArray[np.int64]
    guesses: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Plotted:
    """The data that plots are drawn from.

    Args:
        source: The results in the store, with the epochs of the trials; None for findings, which have only a table.
        table: The table of the arms to draw.
        metric: The metric to draw, on the test split, or on the validation split in plots of validation results.
        by: The quantity on the horizontal axis, in plots that let the user choose it; empty for the default.
    """

    source: Held | None
    table: Table
    metric: str
    by: str = ""

    @property
    def study(self) -> Study:
        """The study."""
        return self.table.study

    @property
    def held(self) -> Held:
        """The results in the store; raises ``NothingToPlotError`` if there is only a table."""
        if self.source is None:
            raise NothingToPlotError("it is drawn from trials, which findings do not have")
        return self.source

    @cached_property
    def looks(self) -> Mapping[str, Look]:
        """How each loss is drawn, by its label; this does not depend on which arms are shown."""
        return looks([arm.loss for arm in self.study.arms])

    @cached_property
    def arms(self) -> dict[tuple[str, str], Arm]:
        """The arms that are drawn, by row and column of the table."""
        result = {row_and_column(self.study, self.table.across, arm): arm for arm in self.study.arms}
        return {key: arm for key, arm in result.items() if key in self.table.confirmations}

    def cell(self, row: str, column: str) -> Cell | None:
        """Return a cell of the metric to draw."""
        return self.table.cells.get((row, column, self.metric))

    def columns(self, keys: Iterable[tuple[str, str]]) -> list[str]:
        """Return the columns of some arms, in the order of the table.

        Args:
            keys: The row and the column of each arm.
        """
        drawn = {column for _, column in keys}
        return [column for column in self.table.columns if column in drawn]

    def completed(self, key: tuple[str, str]) -> list[Row]:
        """Return the rows of an arm's completed confirmations."""
        rows = self.table.confirmations.get(key, {}).values()
        return [row for row in rows if row["status"] == "completed"]

    def guessed(self, key: tuple[str, str]) -> Iterator[RunGuesses]:
        """Yield the guesses of an arm's completed confirmations that kept them, in the order of their seeds."""
        held = self.held
        for seed, row in sorted(self.table.confirmations.get(key, {}).items()):
            kept = read_guesses(held.ledger.store, row) if row["status"] == "completed" else None
            ranks = held.ranks([row]).get(row["key"])
            if kept is not None and ranks is not None:
                yield RunGuesses(self.arms[key], seed, ranks.images, ranks.label, kept.classes)

    def history(self, arm: Arm) -> ArmHistory:
        """Return an arm's history."""
        return self.held.histories[self.study.arm_id(arm)]

    @cached_property
    def named(self) -> frozenset[str]:
        """The rows that are drawn with a colour and a name: all of them if there are at most sixteen.

        With more rows, these are the rows of the baseline and of the eight losses whose differences to the baseline
        have the largest sums over all columns and models. The other rows are grey. This choice only makes the plot
        readable; it is not a test.
        """
        rows = self.table.rows
        if len(rows) <= _CROWD:
            return frozenset(rows)
        labels = {row: arm.loss.label for (row, _), arm in self.arms.items()}
        leads: dict[str, float] = {}
        for row, label in labels.items():
            leads[label] = leads.get(label, 0.0) + self._lead(row)
        leads.pop(self.study.baseline or "", None)
        leading = {self.study.baseline, *sorted(leads, key=lambda label: -leads[label])[:_NAMED]}
        return frozenset(row for row, label in labels.items() if label in leading)

    def _lead(self, row: str) -> float:
        cells = [self.cell(row, column) for column in self.table.columns]
        result = [c.difference or c.value for c in cells if c is not None]
        sign = -1 if less_is_better(self.metric) else 1
        return sign * sum(estimate.mean for estimate in result if estimate is not None)

    def line_look(self, row: str, column: str) -> Look:
        """Return how the loss of a cell is drawn in a plot of many losses: in grey if it is not :attr:`named`."""
        result = self.look(row, column)
        return result if row in self.named else replace(result, colour=OTHERS)

    def look(self, row: str, column: str) -> Look:
        """Return how the loss of a cell is drawn."""
        return self.looks[self.arms[row, column].loss.label]
