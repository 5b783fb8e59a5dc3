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
    left = set(open_)
    asked = {arm.name: (arm, study.arm_id(arm)) for arm in study.arms if study.arm_id(arm) in left}
    by_reason: dict[str, list[Row]] = defaultdict(list)
    for (name, arm_id, *_), same in _alike(ledger, asked).items():
        arm, now = asked[name]
        if arm_id != now:
            by_reason[_redefined(study, ledger, arm, same)] += same
        elif counted[now].excludes(same[0]):
            by_reason[_changed_since(same[0], counted[now])] += same
    return sorted((_outdated(why, same) for why, same in by_reason.items()), key=lambda each: -each.trials)


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
    why = identity.excludes(row)
    if why == "other code":
        return f"the code has changed: {_named(differences(row['code_version'], identity.code_version))}"
    return (
        "the data have changed" if why == "other data" else f"the machine or its packages have changed: {why}"
    )


def _redefined(study: Study, ledger: Ledger, arm: Arm, rows: Sequence[Row]) -> str:
    """Return how the study now differs from the newest of some rows."""
    key = max(rows, key=lambda row: row["ended"])["key"]
    (row,) = ledger.rows(where=f"key = '{key}'")
    with suppress(ValueError, TypeError):
        trial = Trial.from_json(row["config"])
        was, now = _facts(trial.arm, trial.root, trial), _facts(arm, study.seed, study)
        differing = [
            f"{name} was {was.get(name, 'not there')}, is {now.get(name, 'gone')}"
            for name in sorted(was.keys() | now.keys())
            if was.get(name) != now.get(name)
        ]
        if differing:
            return f"the study has changed: {_named(differing)}"
    return "the study has changed, or an earlier version of this package wrote these trials"


def _named(items: Sequence[str]) -> str:
    more = f"; and {len(items) - _NAMED} more" if len(items) > _NAMED else ""
    return "; ".join(items[:_NAMED]) + more


def _facts(arm: Arm, seed: int, holder: Trial | Study) -> dict[str, str]:
    """Return the parts of an arm's identity, by names such as ``recipe.epochs``, as JSON."""
    names = ("targets", "threads", "device", "measures")  # and not topk: ranks answer every K
    arm = arm.searched(1)
    facts: dict[str, Any] = encode({field.name: getattr(arm, field.name) for field in fields(arm)})
    return dict(_flat({**facts, "seed": seed, **encode({name: getattr(holder, name) for name in names})}))


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _flat(item, f"{path}.{name}" if path else name)
    else:
        yield path, json.dumps(value)
