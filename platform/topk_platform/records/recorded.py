"""The records of a study in its store, for commands that do not have the study's definition."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from topk_platform.errors import StoreError, UserError
from topk_platform.protocol import ArmProgress
from topk_platform.records.history import ArmHistory, StudyRows, results_of
from topk_platform.records.ledger import Ledger, is_study
from topk_platform.records.rows import Row
from topk_platform.records.storage.checked_json import with_checksum, without_checksum
from topk_platform.records.storage.store import Store
from topk_platform.specs import Arm, Study, Trial
from topk_platform.specs.checks import absolute

__all__ = [
    "GONE",
    "LastRun",
    "Recorded",
    "RecordedTrial",
    "as_recorded",
    "find",
    "finished_before",
    "note_plan",
    "read_plan",
]

GONE = "arms that the study no longer has"
"""The reason why trials of other arms do not count."""


@dataclass(frozen=True)
class Recorded:
    """What a store holds of a study, read once.

    Args:
        ledger: The ledger.
        histories: The rows that counted in the last run, by arm ID. The arms that the run was asked for come
            first.
        progress: The progress of the arms that the last run was asked for, by arm ID. Other arms are missing
            here.
        trials: How many trials have ended.
        last: When the last trial ended; None if none has ended.
        outdated: How many ended trials did not count in the last run, by reason.
        keys: The keys of all ended trials.
    """

    ledger: Ledger
    histories: Mapping[str, ArmHistory]
    progress: Mapping[str, ArmProgress]
    trials: int
    last: datetime | None
    outdated: Mapping[str, int]
    keys: Collection[str]

    @classmethod
    def read(cls, ledger: Ledger) -> Recorded:
        """Return what a ledger holds; its epochs are not read.

        Args:
            ledger: The ledger.

        Raises:
            StoreError: if the store cannot be read.
        """
        identities, summary, plan = ledger.identities(), ledger.arms(), read_plan(ledger.store)
        study = None if plan is None else as_recorded(plan.study, ledger)
        planned = {} if study is None else {study.arm_id(arm): arm for arm in study.arms}
        arms = planned | _recorded_arms(ledger.store, summary, identities.keys() - planned.keys())
        rows = StudyRows(ledger, arms.values(), curves=False)
        histories = rows.plain_histories(arms, identities)
        results = (
            {} if study is None else results_of(study, {arm_id: histories[arm_id] for arm_id in planned})
        )
        outdated = sum((history.outdated for history in histories.values()), Counter[str]())
        if identities:
            outdated[GONE] = sum(row["trials"] for row in summary if row["arm_id"] not in identities)
        return cls(
            ledger,
            histories,
            {arm_id: arm.state for arm_id, arm in results.items()},
            sum(row["trials"] for row in summary),
            max((row["ended"] for row in summary), default=None),
            +outdated,
            set(rows.keys),
        )


def _recorded_arms(store: Store, summary: Iterable[Row], arm_ids: Collection[str]) -> dict[str, Arm]:
    """Return the recorded arms with these IDs, by arm ID, in the order of their names."""
    rows = [row for row in summary if row["arm_id"] in arm_ids]
    try:
        arms = {row["arm_id"]: Trial.from_json(row["config"]).arm for row in rows}
    except ValueError as error:
        raise StoreError(
            f"store {store.uri!r} holds trials of another version of topk-studies, which this one cannot read: {error}"
        ) from error
    return dict(sorted(arms.items(), key=lambda item: item[1].name))


def as_recorded(study: Study, ledger: Ledger) -> Study:
    """Return a study whose arms go on with the trials that were recorded with other K.

    The K of the metrics is part of an arm's identity, but the ranks of the test images answer every K. So an arm whose
    recorded trials differ in nothing but the K keeps theirs.
    """
    counted = ledger.identities()
    new = [arm for arm in study.arms if study.arm_id(arm) not in counted]
    if not new:
        return study
    held = {row["arm_id"]: tuple(json.loads(row["config"])["topk"]) for row in ledger.arms()}
    new = [arm for arm in new if study.arm_id(arm) not in held]
    measured = dict(study.measured)
    for topk in dict.fromkeys(held.values()):
        other = replace(study, measured={arm.name: topk for arm in new})
        measured |= {arm.name: topk for arm in new if held.get(other.arm_id(arm)) == topk}
    return replace(study, measured=measured)


_FILE = "plan.json"
_BUDGET = ("searches", "trials", "seeds")


@dataclass(frozen=True)
class LastRun:
    """What the last run of a study was asked for.

    Args:
        study: The study with the arms and the budget of the run; ``changed`` names what the run's options changed.
        data: The folder of datasets that was given; empty if none was.
    """

    study: Study
    data: str = ""

    def budget_of(self, study: Study) -> Study:
        """Return a study with the options of the run, except for those that it already has.

        Raises:
            UserError: if those that it has do not go together with those of the run.
        """
        numbers = {name: getattr(source, name) for source in (self.study, study) for name in source.changed}
        try:
            return study.with_budget(**numbers)
        except UserError:
            if study.changed:
                raise
            return study  # its definition has other searches now, which the numbers of the run do not fit


def note_plan(store: Store, study: Study, data: str | Path | None = None) -> None:
    """Write what a run was asked for into the study's folder.

    Args:
        store: The study's folder.
        study: The study with the requested arms and the requested budget.
        data: The folder of datasets; None if none was given.

    Raises:
        StoreError: if it cannot be written.
    """
    asked = {"study": json.loads(study.to_json()), "changed": study.changed}
    store.write(_FILE, with_checksum({**asked, "data": "" if data is None else str(absolute(data))}))


def finished_before(last: LastRun | None, part: Study, ended: Callable[[Study], bool]) -> Study:
    """Return a study with the larger of its budget and the last run's, if that has ended: a smaller one hides nothing.

    Args:
        last: What the last run was asked for.
        part: The study with the budget that is requested now.
        ended: Whether no trial of a study is left.
    """
    if last is None:
        return part
    numbers = {name: max(getattr(last.study, name), getattr(part, name)) for name in _BUDGET}
    with suppress(UserError):  # trials and seeds that are no multiple of the searches
        larger = part.with_budget(**numbers)
        if any(numbers[name] != getattr(part, name) for name in _BUDGET) and ended(larger):
            return larger
    return part


def read_plan(store: Store) -> LastRun | None:
    """Return what the last run was asked for; None if it is not noted or cannot be read."""
    with suppress(FileNotFoundError, StoreError, ValueError, KeyError, TypeError, RecursionError):
        noted = without_checksum(store.read(_FILE))
        study = Study.from_json(json.dumps(noted["study"]))
        return LastRun(replace(study, changed=tuple(noted.get("changed", ()))), noted.get("data", ""))
    return None


@dataclass(frozen=True)
class RecordedTrial:
    """A recorded trial: its ledger row and its epochs' rows."""

    row: Row
    epochs: list[Row]

    @property
    def trial(self) -> Trial:
        """The trial as it was planned."""
        return Trial.from_json(self.row["config"])


def find(key: str, store: str | Path = "runs") -> RecordedTrial:
    """Return the trial whose key begins with ``key``, from any study of the store.

    Args:
        key: The trial's key or its first characters.
        store: Folder or URI of the results.

    Raises:
        UserError: if no trial or several match, or ``key`` cannot be a trial's.
        StoreError: if the store cannot be listed, or no trial matches and a study that cannot be read may hold it.
    """
    if not key.isalnum():
        raise UserError(f"key must be a trial's key or its first letters, got {key!r}")
    root = Store.open(store)
    matches, errors, where = [], list[UserError](), f"starts_with(key, '{key}')"
    for study in root.folders():
        try:
            ledger = Ledger.open(root, study)
            matches += [(ledger, row) for row in ledger.rows(where)]
        except UserError as error:
            # A folder that is not a study, such as MLflow's artifacts, cannot hold the trial.
            errors += [error] if is_study(root, study) else []
    if errors and not matches:
        raise errors[0]
    if len(matches) != 1:
        raise UserError(
            f"key {key!r} must be the key of one trial in store {str(store)!r}, got {len(matches)} trials; "
            "`topk export STUDY --format csv --to trials.csv` lists a study's trials with their keys"
        )
    ledger, row = matches[0]
    return RecordedTrial(row, ledger.read("epochs", where=f"key = '{row['key']}'").to_pylist())
