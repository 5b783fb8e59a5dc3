"""A study's findings in a small file: definition, cells, chosen values, descriptions of regimes, and origin.

The file holds neither trials nor ranks, so it takes kilobytes instead of megabytes. It is enough for the table, for
plots made from a table, and for the verdicts on claims. Results cannot be recomputed from it.
"""

from __future__ import annotations

import gzip
import importlib.metadata
import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topk_platform.errors import UserError
from topk_platform.identity import environment_of
from topk_platform.protocol import Tally
from topk_platform.results.cells import Cell
from topk_platform.results.decisions import (
    ContrastResult,
    Decision,
    decisions_of,
    of_store,
    planned_seeds,
    why_not,
)
from topk_platform.results.findings_file import findings_data, findings_of, usual_spreads
from topk_platform.results.findings_schema import Situation, Situations
from topk_platform.results.from_store import Held, read
from topk_platform.results.intervals import Estimate, of_rows
from topk_platform.results.significance import Precision
from topk_platform.results.table import Table, row_and_column
from topk_platform.specs import Contrast, LabelNoise, Regime, Study
from topk_platform.trust import made_by, parse_json, unzipped

__all__ = ["Findings", "findings", "situation_of"]

_ZERO = 1e-9
_KIND = "a file of findings, as `topk export --format findings` writes it"


@dataclass(frozen=True, repr=False)
class Findings:
    """The findings of a study.

    Args:
        table: Its table; its confirmations have only status and key.
        situations: The descriptions of its regimes; missing for regimes whose data were not on disk.
        made: Its origin: ``trials``, ``code_versions``, ``environments``, ``datasets``, ``package`` and ``note``.
        contrasts: The results of all contrasts of its claims, in the claims' order; by default those that the table
            has: means, and differences to the baseline.
    """

    table: Table
    situations: Situations
    made: Mapping[str, Any]
    contrasts: Sequence[ContrastResult] = ()

    @property
    def study(self) -> Study:
        """The study, as it was defined."""
        return self.table.study

    def to_bytes(self) -> bytes:
        """Return the file, gzipped JSON; the same for the same findings."""
        data = findings_data(self.table, self.situations, self.made, self.contrasts)
        return gzip.compress(json.dumps(data, allow_nan=False, separators=(",", ":")).encode(), mtime=0)

    @classmethod
    def read(cls, file: str | Path) -> Findings:
        """Return the findings in a file that ``topk export STUDY --format findings`` wrote.

        Args:
            file: The file.

        Raises:
            UserError: if it cannot be read, is not a file of findings, or unpacks to more than ``TOPK_FILE_GIB``
                allows.
        """
        with made_by(file, _KIND):
            return cls(*findings_of(parse_json(unzipped(Path(file).expanduser()))))

    def decisions(self) -> tuple[Decision, ...]:
        """Return the verdicts on the study's claims."""
        return decisions_of(self.study, self.contrasts or _of_table(self.table))

    def origin(self) -> str:
        """Return the findings' origin in one line."""
        made = self.made
        note = f"; {made['note']}" if made["note"] else ""
        return f"{self.study.name}: {made['trials']} recorded trials, topk-studies {made['package']}{note}"

    def _repr_html_(self) -> str:
        return self.table.to_html()

    def __str__(self) -> str:
        return f"{self.table}\n{self.origin()}"

    __repr__ = __str__


def findings(
    study: Study, *, store: str | Path = "runs", data: str | Path | None = None, note: str = ""
) -> Findings:
    """Return a study's findings from a store: its table, its claims' results and its context, without trials.

    Args:
        study: The study.
        store: Folder or URI of the results.
        data: The folder of datasets. The datasets are read to describe the regimes.
        note: A note to keep with the findings, such as the commit.

    Raises:
        UserError: if the store has no results of the study, no confirmation has ended, or a dataset is not on disk.

    Example:
        >>> from topk_studies import digits
        >>> result = findings(digits(), store="runs", note="two cores")  # doctest: +SKIP
        >>> Path("digits.json.gz").write_bytes(result.to_bytes())  # doctest: +SKIP
    """
    held = read(study, store, needed=True)
    study, data = held.study, held.data_folder(data)
    table = held.table
    if held.changed or not table.confirmed.completed:
        raise UserError(f"no confirmation of study {study.name} has ended, so there are no findings yet")
    from topk_platform.data import data_at  # noqa: PLC0415 - torch

    situations, unread = {}, {}
    with data_at(data):
        for (name, k), regime in {(arm.regime.name, arm.k): arm.regime for arm in study.arms}.items():
            try:
                situations[name, k] = situation_of(regime, k)
            except UserError as error:
                unread[name] = f"{study.name}, {name}: its data cannot be read: {error}"
    if unread:
        raise UserError("; ".join(unread.values()))
    return Findings(table, situations, _made(held, note), of_store(held))


def situation_of(regime: Regime, k: int) -> Situation:
    """Return a regime's description: its classes, and their training images after its conditions.

    Args:
        regime: The regime.
        k: K, the number of guesses.

    Raises:
        UserError: if its data are not on disk.

    Example:
        >>> from topk_platform import LongTail
        >>> tail = situation_of(Regime("tail", "digits", (LongTail(10), LabelNoise(0.2))), 3)
        >>> tail.classes, tail.images < 600, 9 < tail.imbalance < 11, tail.noise, tail.k
        (10, True, True, 0.2, 3)
    """
    import torch  # noqa: PLC0415 - takes a second to import; errors in options are reported without it

    from topk_platform.data import Population, apply_conditions, load  # noqa: PLC0415 - as above
    from topk_platform.data.wrong_labels import Tracked, wrong_share  # noqa: PLC0415 - as above

    others = [condition for condition in regime.conditions if not isinstance(condition, LabelNoise)]
    source = load(regime)
    source = source.example if isinstance(source, Population) else source
    source = source.with_train(Tracked.of(source.train))
    dataset = apply_conditions(source, others, lambda _role: torch.Generator().manual_seed(0))
    counts = [count for count in dataset.class_counts.tolist() if count]
    kept = 1.0 - wrong_share(dataset.train)  # the share of labels that no condition replaces
    for condition in regime.conditions:
        kept *= 1 - condition.probability if isinstance(condition, LabelNoise) else 1
    imbalance = max(counts) / min(counts)
    return Situation(dataset.classes, sum(counts), imbalance, round(1 - kept, 12), k)


def _made(held: Held, note: str) -> Mapping[str, Any]:
    of_arms = [(history.arm, row) for history in held.histories.values() for row in history.rows()]
    rows = [row for _, row in of_arms]
    fingerprints = {arm.regime.name: row["dataset_fingerprint"] for arm, row in of_arms}
    return {
        "trials": len(rows),
        "code_versions": sorted({row["code_version"] for row in rows}),
        "environments": sorted({environment_of(row) for row in rows}),
        "datasets": dict(sorted(fingerprints.items())),
        "package": importlib.metadata.version("topk-studies"),
        "note": note,
    }


def _of_table(table: Table) -> list[ContrastResult]:
    """Return the results of all contrasts of a study's claims, as far as its table has them, in the claims' order."""
    once = {arm.name for arm in table.study.arms if arm.is_searched and arm.repeats.count == 1}
    return [_from_table(one, table, once) for claim in table.study.claims for one in claim.contrasts]


def _from_table(contrast: Contrast, table: Table, once: Collection[str]) -> ContrastResult:
    cells = {
        arm.name: table.cells.get((*row_and_column(table.study, table.across, arm), contrast.metric))
        for arm in table.study.arms
        if arm.name in contrast.weights
    }
    estimate = _sum_of_cells(contrast, table, {name: cell or Cell(None) for name, cell in cells.items()})
    if estimate is None:
        return ContrastResult(
            None, f"findings have only differences to {table.study.baseline}, of the metrics shown"
        )
    tallies = {name: cell.confirmed if cell else Tally() for name, cell in cells.items()}
    return ContrastResult(
        estimate, *why_not(tallies, estimate, once, len(planned_seeds(table.study, contrast)))
    )


def _sum_of_cells(contrast: Contrast, table: Table, cells: Mapping[str, Cell]) -> Estimate | None:
    """Return a contrast's estimate by an arm's own mean, or by differences to the baseline; None if they lack it.

    A row is a search, or a seed where nothing was searched. A table has the images' part of each difference alone. They
    are taken as fully correlated, because regimes share test images: the standard errors add up.
    """
    if list(contrast.weights.values()) == [1]:
        return cells[next(iter(cells))].value
    columns: dict[str, list[tuple[float, str]]] = {}
    for name, weight in contrast.weights.items():
        columns.setdefault(name.rpartition("/")[0], []).append((weight, name))
    if any(abs(sum(weight for weight, _ in arms)) > _ZERO for arms in columns.values()):
        return None
    parts = [
        (weight, cells[name])
        for name, weight in contrast.weights.items()
        if name.rpartition("/")[2] != table.study.baseline
    ]
    known = [
        (weight, cell.difference) for weight, cell in parts if cell.difference and cell.difference.precision
    ]
    if len(known) < len(parts):
        return None
    if len(known) == 1 and abs(known[0][0]) == 1:
        weight, estimate = known[0]
        return estimate if weight > 0 else -estimate
    usual = usual_spreads(table.study, table.across, table.cells)
    least = sum(
        sum(weight**2 for weight, _ in arms) / 2 * usual.get((column, contrast.metric), 0.0)
        for column, arms in columns.items()
    )
    return _summed(parts, table.study.searches, least)


def _summed(parts: Sequence[tuple[float, Cell]], searches: int, least: float) -> Estimate | None:
    """Return the estimate of a weighted sum of differences; None if they have fewer than two seeds in common."""
    seeds = sorted(set.intersection(*(set(cell.differences) for _, cell in parts)))
    values = {seed: sum(weight * cell.differences[seed] for weight, cell in parts) for seed in seeds}
    estimates = [(abs(weight), cell.difference) for weight, cell in parts if cell.difference]
    known = [(weight, one.precision) for weight, one in estimates if one.precision]
    images = Precision(
        by_seeds=0.0,
        by_images=sum(weight * math.sqrt(one.by_images) for weight, one in known) ** 2,
        rows=len(seeds),
        images=min(one.images for _, one in known),
        groups=min(one.parts()[1][1] for _, one in known),
    )
    covers = next((one.covers for _, one in estimates if one.once), estimates[0][1].covers)
    rows = searches if covers.startswith("searches") else 1
    return of_rows(values, images, covers, rows, least) if len(seeds) > 1 else None
