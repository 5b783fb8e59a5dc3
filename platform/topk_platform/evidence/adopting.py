"""Counting results of other code, another machine or other packages, after some of them were trained again here."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, zip_longest
from pathlib import Path

from topk_platform.errors import StoreError, UserError, reason
from topk_platform.evidence.replaying import replay
from topk_platform.evidence.verifying import Checked, replayed
from topk_platform.identity import Identity, Provenance, provenance_of
from topk_platform.records import (
    Evidence,
    Ledger,
    Row,
    Store,
    check_undriven,
    last_counted,
    note_adopted,
    read_adopted,
    take_back,
)
from topk_platform.records.storage.lease import Lease
from topk_platform.running.preflight.identified import identities_here
from topk_platform.specs import Study

__all__ = ["Adoption", "Candidates", "adopt", "candidates", "give_up"]

_COLUMNS = (
    *("key", "arm", "arm_id", "phase", "status", "train_seconds"),
    *("code_version", "dataset_fingerprint", "versions"),
)
_RESULTS = ("completed", "pruned", "diverged")

Group = tuple[str, Provenance]
"""An arm's identity, and what made some of its rows."""


@dataclass(frozen=True)
class Candidates:
    """Recorded trials that do not count, and could be adopted.

    Args:
        groups: The rows, by arm and by what made them; groups without any result are left out.
        identities: What they would count for, by arm identity.
    """

    groups: Mapping[Group, Sequence[Row]]
    identities: Mapping[str, Identity]

    @property
    def trials(self) -> int:
        """How many trials there are."""
        return sum(map(len, self.groups.values()))

    def drawn(self, count: int, seed: int) -> list[Row]:
        """Return the trials to train again: at least one of each group, of both phases, and of what ends in each way.

        Args:
            count: How many; more if there are more groups.
            seed: The seed of the draw.
        """
        draw = random.Random(seed)  # noqa: S311 - a draw that anyone can repeat
        turns = [
            _in_turns(rows, draw, first="confirm" if place % 2 == 0 else "search")
            for place, (_, rows) in enumerate(sorted(self.groups.items(), key=lambda item: repr(item[0])))
        ]
        rounds = (row for rows in zip_longest(*turns) for row in rows if row is not None)
        return [row for row, _ in zip(rounds, range(max(count, len(turns))), strict=False)]


def _in_turns(rows: Sequence[Row], draw: random.Random, first: str) -> list[Row]:
    """Return a group's trials in a random order in which phases, and how trials ended, take turns."""
    kinds: dict[tuple[bool, str, str], list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: str(row["key"])):
        if row["status"] in _RESULTS:
            kinds[row["phase"] != first, row["phase"], row["status"]].append(row)
    for alike in kinds.values():
        draw.shuffle(alike)
    turns = zip_longest(*(kinds[kind] for kind in sorted(kinds)))
    return [row for row in chain.from_iterable(turns) if row is not None]


@dataclass(frozen=True)
class Adoption:
    """The outcome of an adoption.

    Args:
        study: The study's name.
        trials: How many trials could be adopted.
        arms: The names of their arms.
        checked: The outcome for each trial that was trained again.
        told: The evidence in words; empty if nothing was adopted.
    """

    study: str
    trials: int
    arms: tuple[str, ...]
    checked: tuple[Checked, ...]
    told: str = ""

    @property
    def differing(self) -> tuple[Checked, ...]:
        """The trials because of which nothing was adopted."""
        return tuple(one for one in self.checked if one.outcome not in ("to the bit", "within tolerance"))


def candidates(ledger: Ledger, identities: Mapping[str, Identity]) -> Candidates:
    """Return the recorded trials that do not count for these identities although they are of the same arms and data.

    Args:
        ledger: The study's.
        identities: By arm identity.
    """
    found: dict[Group, list[Row]] = defaultdict(list)
    for row in _rows(ledger):
        identity = identities.get(row["arm_id"])
        if identity is not None and identity.excludes(row):
            was = provenance_of(row)
            if identity.dataset_fingerprint in ("", was.dataset_fingerprint):
                found[row["arm_id"], was].append(row)
    sound = {g: rows for g, rows in found.items() if any(row["status"] in _RESULTS for row in rows)}
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
    tell: Callable[[Checked], None] = lambda _: None,
) -> Adoption:
    """Train some recorded trials again that do not count any more; if they come out the same, count all of them.

    The trials that are trained again are drawn over arms and phases: at least one of each arm, and of each version
    of the code and each machine that made its results. Trials of an ensemble are trained with all of it. What is
    adopted is noted in the store with the evidence, and counts for the code, the machine and the packages at hand.

    Args:
        study: The study.
        store: Folder or URI of the results.
        again: How many trials to train again; at least one of each group, whatever is asked for.
        seed: The seed of the draw.
        within: By how much each metric may differ, as a fraction of 1; None: not by a bit.
        only: A glob over arm names, ``regime/model/loss``, or several.
        data: The folder of datasets; by default ``TOPK_DATA``, or else ``data``.
        tell: Is told of each trial that was trained again.

    Raises:
        StoreError: if the store cannot be used, or a run drives the study.
        UserError: if a number is out of range, or the data are missing.
    """
    if again < 1 or not (within is None or 0 <= within < math.inf):
        raise UserError(f"replay must be at least 1 and within at least 0, got {again} and {within}")
    part = study.only(only) if only else study
    ledger = _held(store, study)
    identities = identities_here(ledger, part, data)
    found = candidates(ledger, identities)
    checked = []
    for row in found.drawn(again, seed) if found.groups else []:
        checked.append(_checked(str(row["key"]), store, within, data))
        tell(checked[-1])
    names = {study.arm_id(arm): arm.name for arm in part.arms}
    arms = tuple(dict.fromkeys(names[arm_id] for arm_id, _ in found.groups))
    outcome = Adoption(study.name, found.trials, arms, tuple(checked))
    if not checked or outcome.differing:
        return outcome
    told = _told(checked, within)
    _note(ledger, study, found, names, Evidence(told, _as_data(found, checked), seed, within))
    return Adoption(study.name, found.trials, arms, tuple(checked), told)


def _held(store: str | Path, study: Study) -> Ledger:
    ledger = Ledger.open(Store.open(store), study.name)
    if not ledger.exists:
        raise StoreError(f"store {str(store)!r} holds nothing of study {study.name!r}")
    check_undriven(ledger.store)
    return ledger


def _checked(key: str, store: str | Path, within: float | None, data: str | Path | None) -> Checked:
    try:
        found = replay(key, store, data)
    except UserError as error:
        return Checked(key, "cannot be trained here", reason(error))
    return replayed(found, -1.0 if within is None else within)


def _told(checked: Sequence[Checked], within: float | None) -> str:
    same = sum(one.outcome == "to the bit" for one in checked)
    when = f"{datetime.now(UTC):%Y-%m-%d}"
    again = f"{len(checked)} trained again on {when}"
    if same == len(checked):
        return f"{again}, all the same to the bit"
    return f"{again}, {same} the same to the bit and {len(checked) - same} within {within:g} in every metric"


def _as_data(found: Candidates, checked: Iterable[Checked]) -> list[dict[str, str]]:
    arms = {row["key"]: row["arm"] for rows in found.groups.values() for row in rows}
    return [
        {"key": one.name, "arm": arms[one.name], "outcome": one.outcome, "why": one.why} for one in checked
    ]


def _note(
    ledger: Ledger, study: Study, found: Candidates, names: Mapping[str, str], evidence: Evidence
) -> None:
    was: dict[str, list[Provenance]] = defaultdict(list)
    for arm_id, made in found.groups:
        was[arm_id].append(made)
    with Lease(ledger.store):
        note_adopted(ledger.store, names, was, found.identities, evidence)
        ledger.identify({**last_counted(ledger, study), **found.identities})


def give_up(
    study: Study, *, store: str | Path = "runs", only: str | Sequence[str] | None = None
) -> list[str]:
    """Let nothing count any more that was adopted of a study, or of some of its arms; return these arms' names.

    The results stay in the store.

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
