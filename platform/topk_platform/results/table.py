"""The comparison table: configurations selected on validation, test results over fresh seeds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from topk_platform.protocol import Tally
from topk_platform.records.rows import Row
from topk_platform.results.cells import Cell
from topk_platform.specs import Arm, Choice, Dimension, Phase, Scalar, Study
from topk_platform.specs.fields import Whole

__all__ = ["ChosenValues", "Fruitless", "Table", "is_at_end", "main_metric", "row_and_column"]

_END = 0.05  # of a range, at either end


@dataclass(frozen=True)
class ChosenValues:
    """The configuration that one of an arm's searches chose.

    Args:
        values: The best search trial's values.
        validation: Its validation metric.
        trials: How many trials of the search ended.
        stopped: How many of them were not completed: pruned, diverged or failed.
        search: Which of the arm's searches, from 0.
    """

    values: Mapping[str, Scalar]
    validation: float
    trials: Whole
    stopped: Whole
    search: Whole = 0


@dataclass(frozen=True)
class Fruitless:
    """An arm that will have no result: all trials of a phase have ended and none was completed.

    Args:
        arm: Its name.
        phase: ``"search"``, so that there is no configuration to confirm, or ``"confirm"``.
        ends: How the phase's trials ended.
        key: The key of the first of them.
        reason: Why the first of them ended in this way.
    """

    arm: str
    phase: Phase
    ends: Tally
    key: str
    reason: str


@dataclass(frozen=True, repr=False)
class Table:
    """A study's results as values; :class:`~topk_platform.reports.study_table.StudyTable` shows itself, too.

    Args:
        study: The study.
        rows: Row names: losses, or model and loss where the study has several regimes and several models.
        columns: Column names: regimes, or models where the study has several models in a single regime.
        cells: By row, column and metric; missing where there is neither a number nor a reason for its absence.
        choices: The chosen configurations by row and column, one for each search of the arm that has chosen.
        failures: Keys, arms and reasons of failed trials.
        fruitless: The arms that ended without a result.
        outdated: How many recorded trials of these arms do not count, by the reason.
        environments: The number of counting trials by environment, if there are several; and of search trials by the
            version of the package that chose their values.
        across: What the columns are, ``"regime"`` or ``"model"``.
        network_cells: How an arm differs from that of the first network with its regime and loss, marked as a family of
            their own: by the arm's name, the first network's label and the metric.
        confirmations: The ended confirmations' ledger rows by seed, by row and column.
        left: How many trials of these arms have not ended.
        test_images: The number of test images, or of groups of them, and their name, such as ``(160, "typefaces")``, by
            column, where it is known.
        without_ranks: How many completed confirmations lack the ranks of their test images, which intervals need.
        given: Where the results, the data and the cluster are, as the user typed it, by the option's name: ``store``,
            ``data`` and ``address``. Commands in notes have them.
        changed: Whether the study or the code has changed, so that these are the results of the last run before.
        stored: Whether a store holds the trials; notes name commands that need one only then.
    """

    study: Study
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: Mapping[tuple[str, str, str], Cell]
    choices: Mapping[tuple[str, str], tuple[ChosenValues, ...]]
    failures: tuple[tuple[str, str, str], ...] = ()
    fruitless: tuple[Fruitless, ...] = ()
    outdated: Mapping[str, int] = field(default_factory=dict)
    environments: Mapping[str, int] = field(default_factory=dict)
    across: str = "regime"
    network_cells: Mapping[tuple[str, str, str], Cell] = field(default_factory=dict)
    confirmations: Mapping[tuple[str, str], Mapping[int, Row]] = field(default_factory=dict)
    left: int = 0
    test_images: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    without_ranks: int = 0
    changed: bool = False
    given: Mapping[str, str] = field(default_factory=dict, compare=False)
    stored: bool = field(default=True, compare=False)

    @property
    def family_size(self) -> int:
        """The number of tested differences of the primary family, of which a part of a table shows only some.

        The family's marks are corrected for it. It is 0 if none of the cells that are shown is tested.
        """
        return max((cell.family_size for cell in self.cells.values() if cell.primary), default=0)

    @property
    def confirmation_ends(self) -> Tally:
        """How all confirmations ended."""
        return Tally.of(row["status"] for rows in self.confirmations.values() for row in rows.values())


def row_and_column(study: Study, across: str, arm: Arm) -> tuple[str, str]:
    """Return the row and the column of an arm in a table whose columns are ``across``."""
    if across == "model":
        return arm.loss.label, arm.model.label
    several = len(study.models) > 1
    return f"{arm.model.label}/{arm.loss.label}" if several else arm.loss.label, arm.regime.name


def main_metric(study: Study) -> str:
    """Return a study's main metric: the one that selects in most arms, if its tables show it."""
    selecting = Counter(arm.metric for arm in study.arms if arm.metric in study.show)
    return selecting.most_common(1)[0][0] if selecting else study.show[0]


def is_at_end(dimension: Dimension, value: Scalar) -> bool:
    """Return whether a chosen value lies within 5 % of an end of its range, so that better ones may lie beyond.

    The position is that on the scale that is searched. Options of a ``Choice`` have no ends.

    Example:
        >>> from topk_platform.specs import Float
        >>> [is_at_end(Float(0.001, 1, log=True), value) for value in (0.0012, 0.5, 0.72)]
        [True, False, True]
    """
    if isinstance(dimension, Choice) or not isinstance(value, int | float):
        return False
    ends = float(dimension.low), float(dimension.high), float(value)
    low, high, at = map(math.log, ends) if dimension.log else ends
    return not low + _END * (high - low) < at < high - _END * (high - low)
