"""Verifying a bundle: its tables and claims are computed again, and some of its trials are trained again."""

from __future__ import annotations

import math
import random
import re
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa

from topk_platform.elsewhere import made_by, parse_json
from topk_platform.errors import UserError, reason
from topk_platform.evidence.bundle import KIND, Bundle, results
from topk_platform.evidence.replaying import Replay, replay_trusting
from topk_platform.records import Found, Store, find
from topk_platform.results.from_store import Held
from topk_platform.specs.fields import check_call
from topk_platform.trust import Trust

__all__ = ["Checked", "Outcome", "Verification", "compared", "replayed", "verify"]

Outcome = Literal["to the bit", "within tolerance", "differs", "cannot be trained here"]

_ROUNDING = 1e-9  # relative; another order of sums or another version of scipy changes numbers by less
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


@dataclass(frozen=True)
class Checked:
    """The outcome for one file or one trial.

    Args:
        name: The file's name, or the trial's key.
        outcome: How the new result compares with the bundle's.
        why: What differs, or why the trial cannot be trained here.
    """

    name: str
    outcome: Outcome
    why: str = ""


@dataclass(frozen=True)
class Verification:
    """The outcome for a bundle.

    Args:
        study: The study's name.
        results: The outcome for each file of tables and claims.
        trials: The outcome for each trial that was trained again.
    """

    study: str
    results: tuple[Checked, ...]
    trials: tuple[Checked, ...]

    @property
    def holds(self) -> bool:
        """Whether all results are the same, to the bit or within the tolerance."""
        return all(one.outcome in ("to the bit", "within tolerance") for one in self.results + self.trials)


def verify(
    file: str | Path,
    *,
    again: int = 0,
    seed: int = 0,
    tolerance: float = 0.005,
    data: str | Path | None = None,
    trust: Iterable[str] = (),
) -> Verification:
    """Compute a bundle's tables and claims again from its ledger, and train some of its trials again.

    Tables and claims count as the same if they are equal to the bit, or if their words are equal and their numbers
    differ by at most 1e-9 relative to their size. The trials to train are drawn from the completed trials that count.

    The file may come from anybody. Only code of this package and of the modules that ``trust`` names is run.

    Args:
        file: A file that ``topk bundle`` wrote.
        again: How many trials to train again; all if there are fewer.
        seed: The seed of the draw.
        tolerance: By how much each metric may differ, as a fraction of 1; other processors round differently.
        data: The folder of datasets; by default ``TOPK_DATA``, or else ``data``.
        trust: The modules whose code the trials may name, such as ``"my_lab"``, with their submodules.

    Raises:
        UserError: if the file is not a bundle, a drawn trial names code that is not trusted, or a number is out of
            range.
    """
    check_call(verify, locals())
    if again < 0 or not 0 <= tolerance < math.inf:
        raise UserError(f"replay and tolerance must be at least 0, got {again} and {tolerance}")
    trusted, bundle = Trust.of(trust), Bundle.read(file)
    with tempfile.TemporaryDirectory() as folder:
        with made_by(file, KIND, pa.ArrowException):
            held = bundle.restore(Store.open(folder))
            checked = _results(bundle.results, results(held))
            drawn = [_recorded(key, folder) for key in _drawn(held, again, seed)]
        for one in drawn:
            trusted.check_arm(f"{str(file)!r}, trial {one.trial.key}", one.trial.arm)
        trials = tuple(_trained(one, file, folder, tolerance, data, trusted) for one in drawn)
    return Verification(bundle.study.name, checked, trials)


def _recorded(key: str, store: str) -> Found:
    """Return a trial of a bundle; raise ``ValueError`` if its configuration belongs to another key."""
    recorded = find(key, store)
    parse_json(recorded.row["config"])  # raises if it is beyond the limits
    if recorded.trial.key != key:
        raise ValueError(f"the configuration of trial {key} is that of {recorded.trial.key}")
    return recorded


def _results(before: dict[str, str], now: dict[str, str]) -> tuple[Checked, ...]:
    return tuple(compared(name, before.get(name, ""), now.get(name, "")) for name in sorted({*before, *now}))


def compared(name: str, before: str, now: str) -> Checked:
    """Return how two texts compare: their words must be equal, and their numbers equal up to rounding.

    Example:
        >>> compared("t", "top5 0.30000000000000004", "top5 0.3").outcome, compared("t", "a 1", "a 2").why
        ('within tolerance', "line 1: 'a 1' has become 'a 2'")
    """
    if before == now:
        return Checked(name, "to the bit")
    old, new = before.splitlines(), now.splitlines()
    for number, (was, is_) in enumerate(zip(old, new, strict=False), 1):
        if not _close(was, is_):
            return Checked(name, "differs", f"line {number}: {was!r} has become {is_!r}")
    if len(old) != len(new):
        return Checked(name, "differs", f"{len(old)} lines have become {len(new)}")
    return Checked(name, "within tolerance", f"numbers differ by at most {_ROUNDING:g}, relative")


def _close(was: str, now: str) -> bool:
    if _NUMBER.sub("#", was) != _NUMBER.sub("#", now):
        return False
    pairs = zip(_NUMBER.findall(was), _NUMBER.findall(now), strict=True)
    return all(
        one == other or math.isclose(float(one), float(other), rel_tol=_ROUNDING) for one, other in pairs
    )


def _drawn(held: Held, count: int, seed: int) -> list[str]:
    keys = sorted(
        row["key"]
        for history in held.histories.values()
        for row in history.rows()
        if row["status"] == "completed"
    )
    return random.Random(seed).sample(keys, min(count, len(keys)))  # noqa: S311 - not for secrets: anyone can repeat the draw


def _trained(
    recorded: Found, file: str | Path, store: str, tolerance: float, data: str | Path | None, trust: Trust
) -> Checked:
    try:
        with made_by(file, KIND):
            replay = replay_trusting(recorded, store, data, trust)
    except UserError as error:
        return Checked(recorded.trial.key, "cannot be trained here", reason(error))
    return replayed(replay, tolerance)


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
