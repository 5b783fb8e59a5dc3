"""The reasons why recorded trials do not count: changes of the code, the data, the versions or the study."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from topk_platform.code_version import code_definitions, code_parts
from topk_platform.identity import Identity
from topk_platform.records import Ledger, Row, Store
from topk_platform.records.table.rows import RowViews
from topk_platform.running.progress.rows import duration
from topk_platform.specs import Arm, Study, Trial
from topk_platform.specs.checks import plural
from topk_platform.specs.codec import encode

__all__ = ["Outdated", "avoidable", "note_code", "outdated"]

_FILE = "code.json"
_VERSIONS = 300  # the newest are kept
_NAMED = 4  # definitions, or differences of a study, in one line
_KIND = ("arm", "arm_id", "code_version", "dataset_fingerprint", "versions")
_COLUMNS = ("key", *_KIND, "train_seconds", "ended")


@dataclass(frozen=True)
class Outdated:
    """Recorded trials that no longer count, for one reason.

    Args:
        why: What has changed.
        trials: How many there are.
        arms: The names of their arms.
        seconds: How long they trained.
        adoptable: Whether they could count without being trained again, see :mod:`topk_platform.evidence`: the study
            still has their arms and data.
    """

    why: str
    trials: int
    arms: tuple[str, ...]
    seconds: float = 0.0
    adoptable: bool = False

    def __str__(self) -> str:
        arms = self.arms[0] if len(self.arms) == 1 else f"{len(self.arms)} arms"
        count = f"{plural(self.trials, 'recorded trial')} of {arms}"
        return f"{count}, {duration(self.seconds)} of training: {self.why}"


def avoidable(reasons: Sequence[Outdated], command: str) -> str:
    """Return the line that says how to avoid training trials again; empty if all must be trained.

    Args:
        reasons: Why recorded trials do not count.
        command: The command that adopts them.
    """
    could = [one for one in reasons if one.adoptable]
    if not could:
        return ""
    trials, arms = sum(one.trials for one in could), {arm for one in could for arm in one.arms}
    again, seconds = len(arms), sum(one.seconds for one in could)
    return (
        f"{trials} of them need not be trained: `{command} --replay {again}` trains {again} again, about "
        f"{duration(seconds / trials * again)}, and counts all {trials} if these come out the same"
    )


def outdated(
    study: Study, ledger: Ledger, counted: Mapping[str, Identity], open_: Iterable[str]
) -> list[Outdated]:
    """Return why recorded trials of a study's arms do not count; the reason with the most trials comes first.

    Args:
        study: The study.
        ledger: The ledger with the trials, and with notes on the code that trained them, see :func:`note_code`.
        counted: Which rows count, by arm identity.
        open_: The identities of the arms that have trials left to run; the others are not reported.
    """
    if not ledger.exists:
        return []
    arms = {study.arm_id(arm): arm for arm in study.arms}
    asked = {arms[arm_id].name: arm_id for arm_id in open_}
    stale: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for (name, arm_id, code, *_), same in _alike(ledger, asked).items():
        if arm_id != asked[name]:
            stale[name, arm_id] += same
        elif reason := counted.get(arm_id, Identity()).excludes(same[0]):
            stale[name, f"{reason} {code}"] += same
    explained = _Explained(study, ledger, arms, counted)
    by_reason: dict[tuple[str, bool], list[Row]] = defaultdict(list)
    for (name, _), same in stale.items():
        by_reason[explained(asked[name], same)] += same
    reasons = [_outdated(why, same, adoptable) for (why, adoptable), same in by_reason.items()]
    return sorted(reasons, key=lambda one: -one.trials)


def _alike(ledger: Ledger, arms: Collection[str]) -> dict[tuple[str, ...], list[Row]]:
    """Return the rows of arms, given by name, in groups that are equal in :data:`_KIND`: few groups of many rows."""
    rows = RowViews(ledger.read("trials", _COLUMNS))
    kinds = zip(*(rows.column(name) for name in _KIND), strict=True)
    alike: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for kind, row in zip(kinds, rows, strict=True):
        if kind[0] in arms:
            alike[kind].append(row)
    return alike


def _outdated(why: str, rows: Sequence[Row], adoptable: bool) -> Outdated:
    arms = tuple(dict.fromkeys(row["arm"] for row in rows))
    return Outdated(why, len(rows), arms, sum(row["train_seconds"] or 0.0 for row in rows), adoptable)


@dataclass
class _Explained:
    """Explains why rows with the same code, data and machine do not count."""

    study: Study
    ledger: Ledger
    arms: Mapping[str, Arm]
    counted: Mapping[str, Identity]

    @cached_property
    def _noted(self) -> dict[str, dict[str, str]]:
        return _read(self.ledger.store)

    def __call__(self, arm_id: str, rows: Sequence[Row]) -> tuple[str, bool]:
        """Return the explanation, and whether the rows could be adopted."""
        if rows[0]["arm_id"] != arm_id:
            return self._definition(self.arms[arm_id], max(rows, key=lambda row: row["ended"])["key"]), False
        identity, row = self.counted[arm_id], rows[0]
        adoptable = identity.dataset_fingerprint in ("", row["dataset_fingerprint"])
        if identity.code_version not in ("", row["code_version"]):
            return self._code(self.arms[arm_id], row["code_version"]), adoptable
        reason = identity.excludes(row)
        if reason == "other data":
            return "the data have changed", adoptable
        return f"the machine or its packages have changed: {reason}", adoptable

    def _definition(self, arm: Arm, key: str) -> str:
        """Return how the study now differs from the trial with this key."""
        (row,) = self.ledger.rows(where=f"key = '{key}'")
        with suppress(ValueError, TypeError):
            differing = _differing(Trial.from_json(row["config"]), arm, self.study)
            if differing:
                return f"the study has changed: {_named(differing, '; ')}"
        return "the study has changed, or an earlier version of this package wrote these trials"

    def _code(self, arm: Arm, was: str) -> str:
        if was not in self._noted:
            return f"the code has changed since version {was}, whose definitions were not recorded"
        before, now = self._noted[was], code_definitions(arm)
        changed = [f"{name}{_how(name, before, now)}" for name in _changed(before, now)]
        return (
            f"the code has changed: {_named(changed, ', ')}"
            if changed
            else "code that the recorded definitions refer to has changed, or an installed package"
        )


def _changed(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    return [name for name in sorted(before.keys() | now.keys()) if before.get(name) != now.get(name)]


def _how(name: str, before: Mapping[str, str], now: Mapping[str, str]) -> str:
    return " (new)" if name not in before else " (gone)" if name not in now else ""


def _named(items: Sequence[str], separator: str) -> str:
    more = f"{separator}and {len(items) - _NAMED} more" if len(items) > _NAMED else ""
    return separator.join(items[:_NAMED]) + more


def _differing(trial: Trial, arm: Arm, study: Study) -> list[str]:
    """Return which parts of an arm's identity differ from a trial's, such as ``recipe.epochs was 20, is 30``."""
    was = _facts(trial.arm, trial.root, trial)
    now = _facts(arm, study.seed, study)
    before, after = dict(_flat(was)), dict(_flat(now))
    return [
        f"{name} was {before.get(name, 'not there')}, is {after.get(name, 'gone')}"
        for name in _changed(before, after)
    ]


def _facts(arm: Arm, seed: int, holder: Trial | Study) -> dict[str, Any]:
    names = ("topk", "targets", "threads", "device", "measures")
    facts: dict[str, Any] = encode({field.name: getattr(arm, field.name) for field in fields(arm)})
    return {**facts, "seed": seed, **encode({name: getattr(holder, name) for name in names})}


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _flat(item, f"{path}.{name}" if path else name)
    else:
        yield path, json.dumps(value)


def note_code(store: Store, study: Study) -> None:
    """Note the definitions behind each arm's code version, so that later runs can say which of them changed.

    Args:
        store: The study's folder.
        study: The study.

    Raises:
        StoreError: if it cannot be written.
    """
    parts, versions = _noted(store)
    new = code_parts(study)
    if not new.keys() - versions.keys():
        return
    versions |= {version: [part.version for part in own] for version, own in new.items()}
    parts |= {part.version: dict(part.definitions) for own in new.values() for part in own}
    newest = dict(list(versions.items())[-max(_VERSIONS, len(new)) :])
    kept = {part: parts[part] for own in newest.values() for part in own}
    store.write(_FILE, json.dumps({"parts": kept, "versions": newest}).encode())


def _noted(store: Store) -> tuple[dict[str, dict[str, str]], dict[str, list[str]]]:
    """Return the noted definitions of each part, and the parts of each version; damaged notes are ignored."""
    if not store.exists(_FILE):
        return {}, {}
    with suppress(ValueError, AttributeError, KeyError, TypeError):
        note = json.loads(store.read(_FILE))
        parts = {str(part): dict(definitions) for part, definitions in note["parts"].items()}
        versions = {str(version): [str(p) for p in of] for version, of in note["versions"].items()}
        if all(part in parts for of in versions.values() for part in of):
            return parts, versions
    return {}, {}


def _read(store: Store) -> dict[str, dict[str, str]]:
    """Return the noted definitions of each version."""
    parts, versions = _noted(store)
    return {v: {n: d for part in of for n, d in parts[part].items()} for v, of in versions.items()}
