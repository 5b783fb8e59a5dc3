"""Training one recorded trial again, alone and in this process."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topk_platform.errors import UserError
from topk_platform.identity import Identity
from topk_platform.records.ledger import Ledger
from topk_platform.records.per_image import read_ranks
from topk_platform.records.recorded import RecordedTrial, find
from topk_platform.records.rows import Row
from topk_platform.records.storage.checked_json import DamagedError
from topk_platform.records.storage.store import Store
from topk_platform.records.writer import epoch_rows, trial_row
from topk_platform.references import import_reference, is_reference
from topk_platform.specs import Trial, TrialRecord
from topk_platform.specs.fields import check_call
from topk_platform.trust import Trust
from topk_platform.versions import differences, loaded_version

__all__ = ["Replay", "replay"]


@dataclass(frozen=True)
class Replay:
    """A trial's record in the ledger, and its new one.

    Args:
        recorded: The trial in the ledger.
        record: The new record.
        differences: The values that are not the same bit for bit, by name, each old and new: the status, metrics,
            values of epochs as ``epoch 3: validation.top1``, and ``ranks`` of the test images, whose two values are
            None. What only one of the two has is None in the other.
        code_version: The versions of the arm's components now, which may differ from the record's.
        environment: How the machine and its packages differ from the record's; empty if they do not.
    """

    recorded: RecordedTrial
    record: TrialRecord
    differences: Mapping[str, tuple[Any, Any]]
    code_version: str
    environment: str

    @property
    def differing(self) -> tuple[str, ...]:
        """The names of the differences."""
        return tuple(self.differences)

    @property
    def changed(self) -> list[str]:
        """The components whose version is not that of the record."""
        return differences(self.recorded.trial.code_version, self.code_version)

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

    Nothing is written. On the same machine, with the same versions, on the CPU, every metric is the same bit for bit.

    The trial's record names the code that trains it. Code of this package and of the user's own files is run. A
    module of an installed package or of Python itself must be trusted by name.

    Args:
        key: The trial's key, or its first letters.
        store: Folder or URI of the results.
        data: The folder of datasets; by default ``TOPK_DATA``, or else ``data``.
        trust: Further modules whose code the record may name, with their submodules.

    Raises:
        UserError: if no trial or several trials have this key, a module of the trial is not trusted or cannot be
            imported, its function lacks a parameter of the record, or its data are missing or have changed.
    """
    check_call(replay, locals())
    recorded = find(key, store)
    trusted = Trust.of(trust).with_own_modules(recorded.trial.arm)
    trials = _ensemble(recorded.trial, store)
    for trial in trials:
        trusted.check_arm(f"trial {trial.key}", trial.arm)
    # These import torch, which is not needed for the errors above.
    from topk_platform.data import data_at  # noqa: PLC0415
    from topk_platform.training import environment, finish, run_trials  # noqa: PLC0415

    with data_at(data):
        _check_setup(recorded.trial)
        version = loaded_version(recorded.trial.arm)
        kept = _Kept()
        records = finish(run_trials(trials, kept))
    record = records[[trial.key for trial in trials].index(recorded.trial.key)]
    here = Identity(environment=environment(recorded.trial.device)).excludes(recorded.row) or ""
    before = _values(recorded.row, recorded.epochs)
    now = _values(trial_row(record), epoch_rows(record))
    differences = {
        name: (before.get(name), now.get(name))
        for name in dict.fromkeys([*now, *before])
        if not _same(before.get(name), now.get(name))
    }
    if _other_ranks(Store.open(store).at(recorded.trial.study), recorded.row, kept):
        differences["ranks"] = (None, None)
    return Replay(recorded, record, differences, version, here)


class _Kept:
    """A keeper for trials that are trained again: it keeps ranks of test images in memory, and nothing else."""

    seconds = math.inf
    pauses: Sequence[float] = ()

    def __init__(self) -> None:
        self.ranks: dict[str, Any] = {}

    def load(self, trials: Sequence[Trial]) -> None:
        """Return None, because there is no checkpoint."""

    def save(self, trials: Sequence[Trial], step: int, state: dict[str, Any]) -> None:
        """Keep no checkpoint."""

    def save_model(self, trial: Trial, model: Any, inputs: Any) -> str:  # noqa: ARG002 - the signature of a keeper
        """Keep no network."""
        return ""

    def save_guesses(self, trial: Trial, guesses: Any, images: str) -> str:  # noqa: ARG002 - as above
        """Keep no guesses."""
        return ""

    def save_ranks(self, trial: Trial, ranks: Any, *_: Any) -> str:
        """Keep the ranks."""
        self.ranks[trial.key] = ranks
        return ""


def _other_ranks(store: Store, row: Row, kept: _Kept) -> bool:
    """Return whether the ranks of a trial differ from those in the store; False if either is missing or damaged."""
    if row["key"] not in kept.ranks:
        return False
    try:
        before = read_ranks(store, row)
    except DamagedError:  # `topk status` and `topk table` report it
        return False
    now = kept.ranks[row["key"]].numpy()
    return before is not None and not all(
        (old == new).all() for old, new in zip(before[:4], now, strict=True)
    )


def _check_setup(trial: Trial) -> None:
    """Raise ``UserError`` if code or data of the trial cannot be imported, read or called here."""
    arm = trial.arm
    for name in filter(is_reference, (arm.regime.dataset, arm.model.name, arm.loss.name)):
        import_reference(name)
    from topk_platform.data import load  # noqa: PLC0415 - as above
    from topk_platform.models import check_model  # noqa: PLC0415 - as above
    from topk_platform.training import check_parameters  # noqa: PLC0415 - as above

    load(arm.regime)
    check_model(arm.model)
    check_parameters(arm.loss, trial.setting.own)


def _ensemble(trial: Trial, store: str | Path) -> list[Trial]:
    if not trial.together:
        return [trial]
    rows = Ledger.open(Store.open(store), trial.study).rows()
    others = (Trial.from_json(row["config"]) for row in rows)
    alike = (other for other in others if _ensemble_of(other) == _ensemble_of(trial))
    members = {other.number if other.phase == "search" else other.seed: other for other in alike}
    missing = sorted(set(trial.together) - members.keys())
    if missing:
        raise UserError(
            f"key {trial.key!r} was trained in an ensemble, and the store lacks its members {missing}"
        )
    return [members[number] for number in trial.together]


def _ensemble_of(trial: Trial) -> tuple[object, ...]:
    number = trial.number if trial.phase == "confirm" else None
    return trial.arm_id, trial.phase, number, trial.together, trial.code_version, trial.dataset_fingerprint


def _same(before: Any, now: Any) -> bool:
    return bool(before == now or (before != before and now != now))  # noqa: PLR0124 - two NaNs are the same


def _values(row: Row, epochs: Iterable[Row]) -> dict[str, Any]:
    """Return what is compared of a trial, by name, from its rows as the ledger has them; times are left out."""

    def metrics(of: Row, prefix: str = "") -> dict[str, Any]:
        compared = ("validation.", "test.", "train.loss", "learning_rate")
        return {
            f"{prefix}{name}": of[name] for name in of if name.startswith(compared) and of[name] is not None
        }

    values = {"status": row["status"], **metrics(row)}
    for epoch in epochs:
        values |= metrics(epoch, f"epoch {epoch['epoch']}: ")
    return values
