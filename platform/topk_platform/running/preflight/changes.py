"""The reasons why recorded trials do not count: changes of the code, the data, the versions or the study."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any

from topk_platform.identity import Identity
from topk_platform.records.ledger import Ledger
from topk_platform.records.rows import Row, RowViews
from topk_platform.running.views import duration
from topk_platform.specs import Arm, Study, Trial
from topk_platform.specs.checks import plural
from topk_platform.specs.codec import encode
from topk_platform.versions import differences

__all__ = ["Outdated", "outdated"]

_NAMED = 4  # components, or differences of a study, in one line
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
    """

    why: str
    trials: int
    arms: tuple[str, ...]
    seconds: float = 0.0

    def __str__(self) -> str:
        arms = self.arms[0] if len(self.arms) == 1 else f"{len(self.arms)} arms"
        count = f"{plural(self.trials, 'recorded trial')} of {arms}"
        return f"{count}, {duration(self.seconds)} of training: {self.why}"


def outdated(
    study: Study, ledger: Ledger, counted: Mapping[str, Identity], open_: Iterable[str]
) -> list[Outdated]:
    """Return why recorded trials of a study's arms do not count; the reason with the most trials comes first.

    Args:
        study: The study.
        ledger: The ledger with the trials.
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
    by_reason: dict[str, list[Row]] = defaultdict(list)
    for (name, _), same in stale.items():
        arm_id = asked[name]
        by_reason[
            _changed_since(same[0], counted[arm_id])
            if same[0]["arm_id"] == arm_id
            else _redefined(study, ledger, arms[arm_id], same)
        ] += same
    reasons = [_outdated(why, same) for why, same in by_reason.items()]
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


def _outdated(why: str, rows: Sequence[Row]) -> Outdated:
    arms = tuple(dict.fromkeys(row["arm"] for row in rows))
    return Outdated(why, len(rows), arms, sum(row["train_seconds"] or 0.0 for row in rows))


def _changed_since(row: Row, identity: Identity) -> str:
    """Return what has changed since a row of the same arm was made."""
    if identity.code_version not in ("", row["code_version"]):
        return (
            f"the code has changed: {_named(differences(row['code_version'], identity.code_version), '; ')}"
        )
    why = identity.excludes(row)
    return (
        "the data have changed" if why == "other data" else f"the machine or its packages have changed: {why}"
    )


def _redefined(study: Study, ledger: Ledger, arm: Arm, rows: Sequence[Row]) -> str:
    """Return how the study now differs from the newest of some rows."""
    key = max(rows, key=lambda row: row["ended"])["key"]
    (row,) = ledger.rows(where=f"key = '{key}'")
    with suppress(ValueError, TypeError):
        differing = _differing(Trial.from_json(row["config"]), arm, study)
        if differing:
            return f"the study has changed: {_named(differing, '; ')}"
    return "the study has changed, or an earlier version of this package wrote these trials"


def _changed(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    return [name for name in sorted(before.keys() | now.keys()) if before.get(name) != now.get(name)]


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
    names = ("targets", "threads", "device", "measures")  # and not topk: ranks answer every K
    arm = arm.searched(1)
    facts: dict[str, Any] = encode({field.name: getattr(arm, field.name) for field in fields(arm)})
    return {**facts, "seed": seed, **encode({name: getattr(holder, name) for name in names})}


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _flat(item, f"{path}.{name}" if path else name)
    else:
        yield path, json.dumps(value)
