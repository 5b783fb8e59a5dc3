"""Training one recorded trial again, alone and in this process, with what its record names."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from topk_platform.errors import UserError
from topk_platform.identity import Identity
from topk_platform.records.ledger import Ledger
from topk_platform.records.networks import StoreKeeper
from topk_platform.records.per_image import read_ranks
from topk_platform.records.recorded import RecordedTrial, find
from topk_platform.records.rows import Row
from topk_platform.records.storage.checked_json import DamagedError
from topk_platform.records.storage.store import Store
from topk_platform.records.writer import epoch_rows, trial_row
from topk_platform.references import import_reference
from topk_platform.specs import Trial, TrialRecord
from topk_platform.specs.fields import check_call
from topk_platform.trust import Trust
from topk_platform.versions import differences, loaded_version, references

__all__ = ["Replay", "replay"]

_COMPARED = ("validation.", "test.", "train.loss", "learning_rate")


@dataclass(frozen=True)
class Replay:
    """A trial's record in the ledger, and its new one.

    Args:
        recorded: The trial in the ledger.
        record: The new record.
        differences: The values that are not the same bit for bit, by name, each old and new: the status, metrics,
            values of epochs as ``epoch 3: validation.top1``, and ``ranks`` of the test images, whose two values are
            None. What only one of the two has is None in the other.
        changed: The components whose version is not that of the record.
        environment: How the machine and its packages differ from the record's; empty if they do not.
    """

    recorded: RecordedTrial
    record: TrialRecord
    differences: Mapping[str, tuple[Any, Any]]
    changed: list[str]
    environment: str

    @property
    def largest(self) -> dict[str, float]:
        """The largest difference of each number over the end and all epochs; infinite if one of two is not finite."""
        result: dict[str, float] = {}
        for name, (before, now) in self.differences.items():
            metric = name.partition(": ")[2] or name
            if metric not in ("status", "ranks"):
                finite = all(value is not None and math.isfinite(value) for value in (before, now))
                result[metric] = max(result.get(metric, 0.0), abs(now - before) if finite else math.inf)
        return result


def replay(
    key: str,
    store: str | Path = "runs",
    data: str | Path | None = None,
    *,
    trust: Iterable[str] = (),
) -> Replay:
    """Train a recorded trial again in this process, with its whole ensemble if it had one, and compare.

    Nothing is written into the store. On the same machine, with the same versions, on the CPU, every metric is the same
    bit for bit.

    The trial's record names the code that trains it. Code of this package and of the user's own files is run. A
    module of an installed package or of Python itself must be trusted by name.

    Args:
        key: The trial's key, or its first letters.
        store: Folder or URI of the results.
        data: The folder of datasets; by default ``TOPK_DATA``, or else ``data``.
        trust: Further modules whose code the record may name, with their submodules.

    Raises:
        UserError: if no trial or several trials have this key, a module of the trial is not trusted or cannot be
            imported, or its data are missing or have changed.
    """
    check_call(replay, locals())
    recorded, root = find(key, store), Store.open(store)
    trial = recorded.trial
    trusted = Trust.of(trust).with_own_modules(trial.arm)
    trials = _ensemble(trial, Ledger.open(root, trial.study).rows()) if trial.together else [trial]
    for member in trials:
        trusted.check_arm(f"trial {member.key}", member.arm)
    # These import torch, which is not needed for the errors above.
    from topk_platform.data import data_at, load  # noqa: PLC0415
    from topk_platform.models import check_model  # noqa: PLC0415
    from topk_platform.training import check_parameters, environment, finish, run_trials  # noqa: PLC0415

    with data_at(data), TemporaryDirectory() as folder:
        for name in references(trial.arm):
            import_reference(name)
        load(trial.arm.regime)  # what cannot be read or built is an error here, not a failed trial
        check_model(trial.arm.model)
        check_parameters(trial.arm.loss, trial.setting.own)
        changed = differences(trial.code_version, loaded_version(trial.arm))
        scratch = Store.open(folder)
        records = finish(run_trials(trials, StoreKeeper(scratch, math.inf, pauses=())))
        record = records[[member.key for member in trials].index(trial.key)]
        before = _values(recorded.row, recorded.epochs, root.at(trial.study))
        now = _values(trial_row(record), epoch_rows(record), scratch)
    differing = {
        name: (before.get(name), now.get(name))
        for name in dict.fromkeys([*now, *before])
        if not _same(before.get(name), now.get(name))
    }
    if (ranks := differing.pop("ranks", None)) and all(ranks):  # a record without ranks says nothing of them
        differing["ranks"] = (None, None)
    here = Identity(environment=environment(trial.device)).excludes(recorded.row) or ""
    return Replay(recorded, record, differing, changed, here)


def _ensemble(trial: Trial, rows: Iterable[Row]) -> list[Trial]:
    """Return the trials that trained together with a trial, and the trial itself, in their order."""

    def stack(of: Trial) -> tuple[object, ...]:
        number = of.number if of.phase == "confirm" else None
        return of.arm_id, of.phase, number, of.together, of.code_version, of.dataset_fingerprint

    alike = (other for row in rows if stack(other := Trial.from_json(row["config"])) == stack(trial))
    members = {other.number if other.phase == "search" else other.seed: other for other in alike}
    missing = sorted(set(trial.together) - members.keys())
    if missing:
        raise UserError(
            f"key {trial.key!r} was trained in an ensemble, and the store lacks its members {missing}"
        )
    return [members[number] for number in trial.together]


def _same(before: Any, now: Any) -> bool:
    return bool(before == now or (before != before and now != now))  # noqa: PLR0124 - two NaNs are the same


def _values(row: Row, epochs: Iterable[Row], store: Store) -> dict[str, Any]:
    """Return what is compared of a trial, by name, from its rows as the ledger has them; times are left out."""
    values = {"status": row["status"], **{name: row[name] for name in row if name.startswith(_COMPARED)}}
    for epoch in epochs:
        named = (name for name in epoch if name.startswith(_COMPARED))
        values |= {f"epoch {epoch['epoch']}: {name}": epoch[name] for name in named}
    with suppress(DamagedError):  # `topk status` and `topk table` report it
        if ranks := read_ranks(store, row):
            values["ranks"] = tuple(column.tobytes() for column in ranks[:4])
    return values
