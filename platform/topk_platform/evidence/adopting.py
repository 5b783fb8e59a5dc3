"""Adopting results of other code, another machine or other packages, after some of them were trained again here."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, zip_longest
from pathlib import Path
from typing import Literal

from topk_platform.errors import UserError, reason
from topk_platform.evidence.replaying import Replay, replay
from topk_platform.identity import Identity, Provenance, provenance_of
from topk_platform.records import (
    Evidence,
    Ledger,
    Row,
    Store,
    check_undriven,
    last_counted,
    note_adopted,
    nothing_of,
    read_adopted,
    take_back,
)
from topk_platform.records.storage.lease import Lease
from topk_platform.running.driver.boards import identities_here
from topk_platform.specs import Study

__all__ = ["Adoption", "Candidates", "Checked", "adopt", "candidates", "give_up", "replayed"]

Outcome = Literal["to the bit", "within tolerance", "differs", "cannot be trained here"]

_COLUMNS = (
    *("key", "arm", "arm_id", "phase", "status", "train_seconds"),
    *("code_version", "dataset_fingerprint", "versions"),
)
_RESULTS = ("completed", "pruned", "diverged")

Group = tuple[str, Provenance]
"""An arm's identity, and the code, data and machine of some of its rows."""


@dataclass(frozen=True)
class Candidates:
    """Recorded trials that do not count but could be adopted.

    Args:
        groups: The rows, by arm and by their code, data and machine; groups without a result are left out.
        identities: The identities for which they would count, by arm identity.
    """

    groups: Mapping[Group, Sequence[Row]]
    identities: Mapping[str, Identity]

    @property
    def trials(self) -> int:
        """How many trials there are."""
        return sum(map(len, self.groups.values()))

    def drawn(self, count: int, seed: int) -> list[Row]:
        """Return the trials to train again: at least one of each group, alternating between phases and statuses.

        Args:
            count: The number of trials; if there are more groups, one trial of each group is drawn.
            seed: The seed of the draw.
        """
        draw = random.Random(seed)  # noqa: S311 - not for secrets: anyone can repeat the draw
        turns = [
            _in_turns(rows, draw, first="confirm" if number % 2 == 0 else "search")
            for number, (_, rows) in enumerate(sorted(self.groups.items(), key=lambda item: repr(item[0])))
        ]
        rounds = (row for rows in zip_longest(*turns) for row in rows if row is not None)
        return [row for row, _ in zip(rounds, range(max(count, len(turns))), strict=False)]


def _in_turns(rows: Sequence[Row], draw: random.Random, first: str) -> list[Row]:
    """Return a group's trials in random order, alternating between phases and statuses."""
    kinds: dict[tuple[bool, str, str], list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: str(row["key"])):
        if row["status"] in _RESULTS:
            kinds[row["phase"] != first, row["phase"], row["status"]].append(row)
    for alike in kinds.values():
        draw.shuffle(alike)
    turns = zip_longest(*(kinds[kind] for kind in sorted(kinds)))
    return [row for row in chain.from_iterable(turns) if row is not None]


@dataclass(frozen=True)
class Checked:
    """The outcome for one trial that was trained again.

    Args:
        name: The trial's key.
        outcome: How the new result compares with its record.
        why: What differs, or why the trial cannot be trained here.
    """

    name: str
    outcome: Outcome
    why: str = ""


@dataclass(frozen=True)
class Adoption:
    """The outcome of an adoption.

    Args:
        study: The study's name.
        trials: How many trials could be adopted.
        arms: The names of their arms.
        checked: The outcome for each trial that was trained again.
        summary: The evidence in words; empty if nothing was adopted.
    """

    study: str
    trials: int
    arms: tuple[str, ...]
    checked: tuple[Checked, ...]
    summary: str = ""

    @property
    def differing(self) -> tuple[Checked, ...]:
        """The trials that did not come out the same here; because of them nothing was adopted."""
        return tuple(one for one in self.checked if one.outcome not in ("to the bit", "within tolerance"))


def candidates(ledger: Ledger, identities: Mapping[str, Identity]) -> Candidates:
    """Return the recorded trials of the same arms and data that do not count for these identities.

    Args:
        ledger: The study's ledger.
        identities: The present identities, by arm identity.
    """
    groups: dict[Group, list[Row]] = defaultdict(list)
    for row in _rows(ledger):
        identity = identities.get(row["arm_id"])
        if identity is not None and identity.excludes(row):
            was = provenance_of(row)
            if identity.dataset_fingerprint in ("", was.dataset_fingerprint):
                groups[row["arm_id"], was].append(row)
    sound = {g: rows for g, rows in groups.items() if any(row["status"] in _RESULTS for row in rows)}
    return Candidates(sound, identities)


def _rows(ledger: Ledger) -> list[Row]:
    return ledger.read("trials", _COLUMNS).to_pylist() if ledger.exists else []


def adopt(
    study: Study,
    *,
    store: str | Path = "runs",
    again: int = 1,
    seed: int = 0,
    within: float | None = None,
    only: str | Sequence[str] | None = None,
    data: str | Path | None = None,
    report: Callable[[Checked], None] = lambda _: None,
) -> Adoption:
    """Train some recorded trials that no longer count; if they come out the same, count all of them.

    The trials to train are drawn over arms and phases: at least one for each arm, each code version and each machine
    of its results. Trials of an ensemble are trained with the whole ensemble. The adoption is noted in the store with
    its evidence. The results count for the present code, machine and packages.

    Args:
        study: The study.
        store: Folder or URI of the results.
        again: How many trials to train again; at least one of each group is drawn.
        seed: The seed of the draw.
        within: By how much each metric may differ, as a fraction of 1; None if every bit must be equal.
        only: A glob over arm names, ``regime/model/loss``, or several.
        data: The folder of datasets; by default ``TOPK_DATA``, or else ``data``.
        report: Called with the outcome of each trial that was trained again.

    Raises:
        StoreError: if the store cannot be used, or a run drives the study.
        UserError: if a number is out of range, or the data are missing.
    """
    if again < 1 or not (within is None or 0 <= within < math.inf):
        raise UserError(f"replay must be at least 1 and within at least 0, got {again} and {within}")
    part = study.only(only) if only else study
    ledger = _held(store, study)
    identities = identities_here(ledger, part, data)
    adoptable = candidates(ledger, identities)
    checked = []
    for row in adoptable.drawn(again, seed) if adoptable.groups else []:
        checked.append(_checked(str(row["key"]), store, within, data))
        report(checked[-1])
    names = {study.arm_id(arm): arm.name for arm in part.arms}
    arms = tuple(dict.fromkeys(names[arm_id] for arm_id, _ in adoptable.groups))
    outcome = Adoption(study.name, adoptable.trials, arms, tuple(checked))
    if not checked or outcome.differing:
        return outcome
    summary = _summary(checked, within)
    _note(ledger, study, adoptable, names, Evidence(summary, _as_data(adoptable, checked), seed, within))
    return Adoption(study.name, adoptable.trials, arms, tuple(checked), summary)


def _held(store: str | Path, study: Study) -> Ledger:
    ledger = Ledger.open(Store.open(store), study.name)
    if not ledger.exists:
        raise nothing_of(store, study.name)
    check_undriven(ledger.store)
    return ledger


def _checked(key: str, store: str | Path, within: float | None, data: str | Path | None) -> Checked:
    try:
        replayed_trial = replay(key, store, data)
    except UserError as error:
        return Checked(key, "cannot be trained here", reason(error))
    return replayed(replayed_trial, -1.0 if within is None else within)


def _summary(checked: Sequence[Checked], within: float | None) -> str:
    same = sum(one.outcome == "to the bit" for one in checked)
    when = f"{datetime.now(UTC):%Y-%m-%d}"
    again = f"{len(checked)} trained again on {when}"
    if same == len(checked):
        return f"{again}, all the same to the bit"
    return f"{again}, {same} the same to the bit and {len(checked) - same} within {within:g} in every metric"


def _as_data(adoptable: Candidates, checked: Iterable[Checked]) -> list[dict[str, str]]:
    arms = {row["key"]: row["arm"] for rows in adoptable.groups.values() for row in rows}
    return [
        {"key": one.name, "arm": arms[one.name], "outcome": one.outcome, "why": one.why} for one in checked
    ]


def _note(
    ledger: Ledger, study: Study, adoptable: Candidates, names: Mapping[str, str], evidence: Evidence
) -> None:
    was: dict[str, list[Provenance]] = defaultdict(list)
    for arm_id, made in adoptable.groups:
        was[arm_id].append(made)
    with Lease(ledger.store):
        note_adopted(ledger.store, names, was, adoptable.identities, evidence)
        ledger.identify({**last_counted(ledger, study), **adoptable.identities})


def give_up(
    study: Study, *, store: str | Path = "runs", only: str | Sequence[str] | None = None
) -> list[str]:
    """Take back what was adopted for a study, or for some of its arms; return the names of these arms.

    The results stay in the store, but do not count.

    Args:
        study: The study.
        store: Folder or URI of the results.
        only: A glob over arm names, or several.

    Raises:
        StoreError: if the store cannot be used, or a run drives the study.
    """
    part = study.only(only) if only else study
    ledger = _held(store, study)
    adopted = read_adopted(ledger.store)
    names = {arm_id: arm.name for arm in part.arms if (arm_id := study.arm_id(arm)) in adopted}
    if names:
        with Lease(ledger.store):
            take_back(ledger.store, names)
    return list(names.values())


def replayed(replay: Replay, tolerance: float) -> Checked:
    """Return how a trial that was trained again compares with its record."""
    key = str(replay.recorded.row["key"])
    if not replay.differing:
        return Checked(key, "to the bit")
    most, what = _largest(replay)
    why = "; ".join([*what, *_circumstances(replay)])
    return Checked(key, "within tolerance" if most <= tolerance else "differs", why)


def _largest(replay: Replay) -> tuple[float, list[str]]:
    """Return the largest difference, infinite if the status differs, and in words what differs."""
    if "status" in replay.differing:
        record, before = replay.record, replay.recorded.row["status"]
        now = ": ".join(filter(None, (record.status, record.reason)))
        return math.inf, [f"its status was {before}, now {now}"]
    ranks = ["the ranks of test images differ"] if "ranks" in replay.differing else []
    differences = list(_differences(replay))
    if not differences:
        return 0.0, ranks
    most, name = max(differences)
    return most, [f"{name}: difference {most:.2g}, the largest of {len(differences)} differences", *ranks]


def _circumstances(replay: Replay) -> Iterable[str]:
    """Yield in words why a trial may have come out differently."""
    if replay.code_version != replay.recorded.trial.code_version:
        yield "the code has changed since"
    if replay.environment:
        yield f"other machine or packages: {replay.environment}"


def _differences(replay: Replay) -> Iterable[tuple[float, str]]:
    """Yield by how much each number differs, relative to its size if that is above 1; ranks are left out.

    The difference is infinite if one of the two values is missing or not finite.
    """
    for name, (before, now) in replay.differences.items():
        if name == "ranks":
            continue
        finite = before is not None and now is not None and math.isfinite(before) and math.isfinite(now)
        yield (abs(now - before) / max(1.0, abs(before)) if finite else math.inf), name
