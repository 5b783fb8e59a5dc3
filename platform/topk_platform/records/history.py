"""Each arm's rows in the ledger: the search continues from them, and tables select by them."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

from topk_platform.code_version import code_versions
from topk_platform.identity import Identity, with_origins
from topk_platform.protocol.ended import Ended, chosen
from topk_platform.protocol.racing import Race, Results, race, racing_groups, racing_step
from topk_platform.records.ledger.curves import Curves
from topk_platform.records.ledger.ledger import Ledger
from topk_platform.records.table.rows import Row, RowViews
from topk_platform.specs import Arm, Study

__all__ = ["ArmHistory", "add_curves", "last_counted", "last_seeds", "read_history"]

_SEARCHED = (
    *("key", "arm_id", "phase", "number", "seed", "status", "reason", "values", "train_seconds"),
    *("code_version", "dataset_fingerprint", "versions"),
)
"""The columns read of search trials, of which there are many."""


@dataclass
class ArmHistory:
    """The rows of one arm that count: those of the arm as defined now, with one :class:`Identity`.

    Args:
        arm: The arm.
        search: Search rows by number.
        confirm: Confirmation rows by number and seed.
        curves: The selection metric by epoch, by key.
        outdated: How many rows of the arm do not count, by reason: other code, other data, another machine.
        points: The most configurations of each search that are confirmed.
        adopted: How many of the rows count because they were adopted, by the evidence.
    """

    arm: Arm
    search: dict[int, Row] = field(default_factory=dict)
    confirm: dict[tuple[int, int], Row] = field(default_factory=dict)
    curves: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    outdated: Counter[str] = field(default_factory=Counter)
    points: int = 1
    adopted: Counter[str] = field(default_factory=Counter)
    _choices: dict[tuple[int, int, int], list[tuple[Ended, ...]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def ended(self) -> dict[int, Ended]:
        """Return the search trials in the search's form."""
        return {number: self._ended(row) for number, row in self.search.items()}

    def ended_confirmations(self) -> dict[tuple[int, int], Ended]:
        """Return the confirmations in the search's form, by number and seed."""
        return {place: self._ended(row) for place, row in self.confirm.items()}

    def _ended(self, row: Row) -> Ended:
        chosen = json.loads(row["values"])
        return Ended(
            number=row["number"],
            values={name: chosen[name] for name in self.arm.loss.space if name in chosen},
            status=row["status"],
            curve=self.curves.get(row["key"], {}),
            selected=row.get(f"validation.{self.arm.metric}"),
            others=tuple(_or_nan(row.get(f"validation.{metric}")) for metric in self.arm.objectives[1:]),
        )

    def chosen(self, trials: int) -> list[tuple[Ended, ...]]:
        """Return what each of the arm's searches chose, if they share out ``trials``.

        For an arm that searches nothing it is the arm's only configuration; for a search without a completed trial it
        is empty.
        """
        known = trials, len(self.search), len(self.curves)  # to which rows are added, never changed
        if known not in self._choices:
            self._choices[known] = [self._chosen(search, trials) for search in range(self.arm.repeats.count)]
        return self._choices[known]

    def _chosen(self, search: int, trials: int) -> tuple[Ended, ...]:
        numbers = self.arm.repeats.numbers(search, trials)
        known = self.search
        completed = [r for n in numbers if (r := known.get(n)) is not None and r["status"] == "completed"]
        if len(self.arm.objectives) > 1:
            return chosen(self.arm, map(self._ended, completed), self.points)
        metric = f"validation.{self.arm.metric}"
        values = [self._objective(r) if (v := r.get(metric)) is None else v for r in completed]
        top = max(values, default=None)  # what most of many trials chose is never looked at
        return chosen(
            self.arm, (self._ended(r) for r, value in zip(completed, values, strict=True) if value == top)
        )

    def _objective(self, row: Row) -> float:
        found: float | None = row.get(f"validation.{self.arm.metric}")
        if found is None:
            curve = self.curves[row["key"]]
            found = curve[max(curve)]
        return found

    def score(self, row: Row) -> float:
        """Return the selection metric of one of the arm's rows; 0 unless it was completed."""
        return self._objective(row) if row["status"] == "completed" else 0.0

    def results(self, trials: int, seeds: int) -> Results | None:
        """Return the arm's results in a race, by the seed's rank; None if it has nothing to confirm.

        Args:
            trials: How many search trials count.
            seeds: How many seeds count.
        """
        done, chosen = self._done(trials), self.chosen(trials)
        if not any(found or not is_done for found, is_done in zip(chosen, done, strict=True)):
            return None
        results = {}
        for rank, seed in enumerate(self.arm.repeats.seeds(seeds), 1):
            search = self.arm.repeats.search_of_seed(seed)
            rows = [self.confirm.get((ended.number, seed)) for ended in chosen[search][:1]]
            if done[search] and None not in rows:
                results[rank] = sum(
                    self.score(row) for row in rows if row is not None
                )  # 0 where it cannot be
        return results

    def _done(self, trials: int) -> list[bool]:
        """Return of each of the arm's searches whether it has ended."""
        repeats, asked = self.arm.repeats, trials if self.arm.is_searched else 0
        return [all(n in self.search for n in repeats.numbers(i, asked)) for i in range(repeats.count)]

    def searched(self, trials: int) -> list[Row]:
        """Return the search trials that have ended, if the searches share out ``trials``."""
        return [row for number, row in self.search.items() if self.arm.repeats.holds(number, trials)]

    def confirmations(self, trials: int, seeds: int) -> dict[int, Row]:
        """Return by seed the confirmations of what the seed's search has chosen by now, whatever their status.

        Args:
            trials: How many search trials count.
            seeds: How many seeds count.
        """
        found = self.chosen(trials)
        rows = {}
        for seed in self.arm.repeats.seeds(seeds):
            for ended in found[self.arm.repeats.search_of_seed(seed)][:1]:
                rows[seed] = self.confirm.get((ended.number, seed))
        return {seed: row for seed, row in rows.items() if row is not None}

    def confirmed_points(self, trials: int, seeds: int) -> dict[int, list[Row]]:
        """Return by seed the confirmations of all configurations that the seed's search has chosen, the main one first.

        Args:
            trials: How many search trials count.
            seeds: How many seeds count.
        """
        found, repeats = self.chosen(trials), self.arm.repeats
        chosen = {seed: found[repeats.search_of_seed(seed)] for seed in repeats.seeds(seeds)}
        rows = {seed: [self.confirm.get((e.number, seed)) for e in points] for seed, points in chosen.items()}
        return {seed: [row for row in points if row is not None] for seed, points in rows.items()}

    def left(self, trials: int, seeds: int) -> int:
        """Return how many of the trials and seeds have not ended, without confirmations that cannot take place."""
        asked = trials if self.arm.is_searched else 0
        repeats, chosen, done = self.arm.repeats, self.chosen(trials), self._done(trials)
        left = (repeats.asked(asked) if asked else 0) - len(self.searched(asked))
        for seed in repeats.seeds(seeds):
            search = repeats.search_of_seed(seed)
            open_ = sum((ended.number, seed) not in self.confirm for ended in chosen[search])
            left += open_ if done[search] else self.points
        return left

    def counting(self, trials: int, seeds: int) -> list[Row]:
        """Return the rows that make a table for this many trials and seeds."""
        return [*self.searched(trials), *chain(*self.confirmed_points(trials, seeds).values())]

    def rows(self) -> list[Row]:
        """Return all rows of the arm's identity."""
        return [*self.search.values(), *self.confirm.values()]


def races(study: Study, histories: Mapping[str, ArmHistory]) -> dict[str, Race]:
    """Return the race that each arm is in, by arm identity; empty for a study without racing.

    Args:
        study: The study, which says which arms race over how many seeds.
        histories: By arm identity.
    """
    found: dict[str, Race] = {}
    for group in racing_groups(study):
        arm_ids = [arm_id for arm in group if (arm_id := study.arm_id(arm)) in histories]
        results = {i: histories[i].results(study.trials, study.seeds) for i in arm_ids}
        assert study.racing is not None  # noqa: S101 - for the type checker: there would be no groups
        stands = race(study.racing, racing_step(group), study.seeds, results)
        found |= dict.fromkeys(arm_ids, stands)
    return found


def last_seeds(study: Study, histories: Mapping[str, ArmHistory]) -> dict[str, int]:
    """Return how many seeds of each arm count, by identity: the study's, unless the arm dropped out earlier."""
    stands = races(study, histories)
    return {
        arm_id: stands[arm_id].last(arm_id, study.seeds) if arm_id in stands else study.seeds
        for arm_id in histories
    }


def last_counted(ledger: Ledger, study: Study, data: Mapping[str, str] | None = None) -> dict[str, Identity]:
    """Return which rows of a study's arms count: those of the current code and of the last run's data and machine.

    Args:
        ledger: The ledger in which the last run noted its data and machine; any will do for an arm that is not noted.
        study: The study.
        data: The fingerprints of the data, by arm identity, in place of those of the last run.

    Returns:
        By arm identity.
    """
    noted = ledger.identities()
    found = {
        arm_id: replace(noted.get(arm_id, Identity()), code_version=code)
        for arm_id, code in code_versions(study).items()
    }
    if data is not None:
        found = {i: replace(identity, dataset_fingerprint=data[i]) for i, identity in found.items()}
    return with_origins(study, found)


def read_history(
    ledger: Ledger, study: Study, identities: Mapping[str, Identity], *, curves: bool = True
) -> dict[str, ArmHistory]:
    """Return each arm's history by its identity.

    Args:
        ledger: Where the rows are.
        study: Says which arms count.
        identities: Which of an arm's rows count, by arm identity; all rows of arms that are missing here.
        curves: Whether to read epochs, which the search needs and tables do not.
    """
    histories = {study.arm_id(arm): ArmHistory(arm, points=study.points(arm)) for arm in study.arms}
    metrics = sorted({f"validation.{metric}" for arm in study.arms for metric in arm.objectives})
    searched = ledger.read("trials", (*_SEARCHED, *metrics), where="phase = 'search'")
    confirmed = ledger.read("trials", without=("config",), where="phase = 'confirm'")
    excluded = _Excluded(identities)
    for history, row, number, _ in _counted(RowViews(searched), histories, excluded):
        history.search[number] = row
    for history, row, number, seed in _counted(RowViews(confirmed), histories, excluded):
        history.confirm[number, seed] = row
    for arm_id, history in histories.items():
        history.adopted.update(excluded.evidence(arm_id, history.rows()))
    if curves:
        add_curves(ledger, histories)
    return histories


def _counted(
    rows: RowViews, histories: Mapping[str, ArmHistory], excluded: _Excluded
) -> Iterator[tuple[ArmHistory, Row, int, int]]:
    """Yield the rows that count, with their arm's history, number and seed; note of the others why they do not.

    Of one number and seed, rows that were adopted come first, so that one of an identity's own takes their place.
    """
    own = []
    kinds = zip(*(rows.column(name) for name in _Excluded.BY), strict=True)
    for row, kind, number, seed in zip(rows, kinds, rows.column("number"), rows.column("seed"), strict=True):
        if (history := histories.get(kind[0])) is None:
            continue
        if reason := excluded(kind):
            history.outdated[reason] += 1
        elif excluded.adopts(kind):
            yield history, row, number, seed
        else:
            own.append((history, row, number, seed))
    yield from own


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


class _Excluded:
    """Why a row does not count; asked once of all rows that are alike in what decides it."""

    BY = ("arm_id", "code_version", "dataset_fingerprint", "versions")

    def __init__(self, identities: Mapping[str, Identity]) -> None:
        self._identities = identities
        self._known: dict[tuple[str, ...], str] = {}
        self._adopted: dict[tuple[str, ...], str] = {}

    def __call__(self, kind: tuple[str, ...]) -> str:
        if kind not in self._known:
            row = dict(zip(self.BY, kind, strict=True))
            self._known[kind] = self._identities.get(kind[0], Identity()).excludes(row)
        return self._known[kind]

    def adopts(self, kind: tuple[str, ...]) -> str:
        """Return on what evidence rows count that would not otherwise; empty if they count by themselves."""
        if not (identity := self._identities.get(kind[0], Identity())).adopted:
            return ""
        if kind not in self._adopted:
            adopted = identity.adopts(dict(zip(self.BY, kind, strict=True)))
            self._adopted[kind] = "" if adopted is None else adopted.evidence
        return self._adopted[kind]

    def evidence(self, arm_id: str, rows: Iterable[Row]) -> Iterator[str]:
        """Yield for each row that was adopted on what evidence."""
        if self._identities.get(arm_id, Identity()).adopted:
            yield from filter(None, (self.adopts(tuple(row[name] for name in self.BY)) for row in rows))


def add_curves(ledger: Ledger, histories: Mapping[str, ArmHistory]) -> None:
    """Add the selection metric by epoch, by key, to each arm's history."""
    metrics = sorted({f"validation.{history.arm.metric}" for history in histories.values()})
    table = ledger.read("epochs", ["key", "epoch", *metrics])
    curves = {metric: Curves(table, metric) for metric in metrics}
    for history in histories.values():
        history.curves = curves[f"validation.{history.arm.metric}"]
