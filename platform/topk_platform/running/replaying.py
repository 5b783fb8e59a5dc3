"""One recorded trial run again, alone and in this process."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topk_platform.code_version import loaded_version
from topk_platform.errors import UserError
from topk_platform.identity import Identity
from topk_platform.records import Found, Ledger, Row, Store, find, read_ranks
from topk_platform.references import import_reference, is_reference
from topk_platform.specs import Arm, Trial, TrialRecord

__all__ = ["Replay", "replay"]


@dataclass(frozen=True)
class Replay:
    """A trial's record in the ledger, and its new one.

    Args:
        found: The trial in the ledger.
        record: The new record.
        differences: What is not bit for bit the same, each as it was and as it is now: the status, metrics, epochs'
            values as ``epoch 3: validation.top1``, and ``ranks`` of the test images.
        code_version: The arm's code version now, which may differ from the record's.
        environment: How the machine and its packages differ from the record's; empty if they do not.
    """

    found: Found
    record: TrialRecord
    differences: Mapping[str, tuple[Any, Any]]
    code_version: str
    environment: str

    @property
    def differing(self) -> tuple[str, ...]:
        """The names of what is not bit for bit the same."""
        return tuple(self.differences)


def replay(key: str, store: str | Path = "runs", data: str | Path | None = None) -> Replay:
    """Run a recorded trial again in this process, with its whole ensemble if it had one, and compare.

    Nothing is written.

    On the same machine, with the same versions, on the CPU, every metric comes out the same bit for bit.

    Args:
        key: The trial's key, or its first letters.
        store: Folder or URI of the results.
        data: The folder of datasets; by default ``TOPK_DATA``, or else ``data``.

    Raises:
        UserError: if no trial or several have this key, a module that the trial refers to cannot be imported, or its
            data are missing or have changed.
    """
    found = find(key, store)
    trials = _ensemble(found.trial, store)
    # Torch, which a key that is no trial's need not wait for.
    from topk_platform.data import data_at  # noqa: PLC0415
    from topk_platform.training import environment, finish, run_trials  # noqa: PLC0415

    with data_at(data):
        _check_setup(found.trial.arm)
        version = loaded_version(found.trial.arm)
        kept = _Kept()
        records = finish(run_trials(trials, kept))
    record = records[[trial.key for trial in trials].index(found.trial.key)]
    here = Identity(environment=environment(found.trial.device)).excludes(found.row)
    differences = {**_differing(found.row, record), **_differing_epochs(found.epochs, record)}
    if _other_ranks(Store.open(store).at(found.trial.study), found.trial.key, kept):
        differences["ranks"] = (None, None)
    return Replay(found, record, differences, version, here)


class _Kept:
    """Keeps of trials that are trained again the ranks of their test images, in memory, and nothing else."""

    seconds = math.inf

    def __init__(self) -> None:
        self.ranks: dict[str, Any] = {}

    def load(self, trials: Sequence[Trial]) -> None:
        """Return that there is no checkpoint."""

    def save(self, trials: Sequence[Trial], step: int, state: dict[str, Any]) -> None:
        """Keep no checkpoint."""

    def save_model(self, trial: Trial, model: Any, inputs: Any) -> None:
        """Keep no network."""

    def save_guesses(self, trial: Trial, guesses: Any, images: str) -> None:
        """Keep no guesses."""

    def save_ranks(self, trial: Trial, ranks: Any, images: str) -> None:
        """Keep the ranks."""
        del images
        self.ranks[trial.key] = ranks


def _other_ranks(store: Store, key: str, kept: _Kept) -> bool:
    """Return whether the ranks of a trial are others than those in the store, where both are there."""
    if key not in kept.ranks or (before := read_ranks(store, key)) is None:
        return False
    now = kept.ranks[key].numpy()
    return not all((old == new).all() for old, new in zip(before[:4], now, strict=True))


def _check_setup(arm: Arm) -> None:
    """Raise ``UserError`` for what is no result of the trial: what it needs cannot be imported or read here."""
    for name in filter(is_reference, (arm.regime.dataset, arm.model.name, arm.loss.name)):
        import_reference(name)
    from topk_platform.data import load  # noqa: PLC0415 - as above

    load(arm.regime)


def _ensemble(trial: Trial, store: str | Path) -> list[Trial]:
    if not trial.together:
        return [trial]
    rows = Ledger.open(Store.open(store), trial.study).rows()
    others = (Trial.from_json(row["config"]) for row in rows)
    members = {_place(other): other for other in others if _ensemble_of(other) == _ensemble_of(trial)}
    missing = sorted(set(trial.together) - members.keys())
    if missing:
        raise UserError(
            f"key {trial.key!r} trained in an ensemble of which the store lacks members {missing}"
        )
    return [members[place] for place in trial.together]


def _ensemble_of(trial: Trial) -> tuple[object, ...]:
    number = trial.number if trial.phase == "confirm" else None
    return trial.arm_id, trial.phase, number, trial.together, trial.code_version, trial.dataset_fingerprint


def _place(trial: Trial) -> int:
    return trial.number if trial.phase == "search" else trial.seed


def _differing(row: Row, record: TrialRecord) -> dict[str, tuple[Any, Any]]:
    now = {f"validation.{name}": value for name, value in record.validation.items()}
    now |= {f"test.{name}": value for name, value in (record.test or {}).items()}
    values = {"status": record.status, **now}
    return {n: (row.get(n), value) for n, value in values.items() if not _same(value, row.get(n))}


def _same(one: Any, other: Any) -> bool:
    return bool(one == other or (one != one and other != other))  # noqa: PLR0124 - NaN is like NaN


def _differing_epochs(rows: Sequence[Row], record: TrialRecord) -> dict[str, tuple[Any, Any]]:
    """Return what epochs showed that differs, and epochs that only one of both has; their times do not count."""
    before = {row["epoch"]: row for row in rows}
    now = {epoch.epoch: epoch for epoch in record.epochs}
    found: dict[str, tuple[Any, Any]] = {}
    for number in sorted(before.keys() | now.keys()):
        if number not in before or number not in now:
            found[f"epoch {number}"] = (number in before or None, number in now or None)
            continue
        epoch, row = now[number], before[number]
        values: dict[str, Any] = {f"validation.{name}": value for name, value in epoch.validation.items()}
        values |= {"train.loss": epoch.train_loss, "learning_rate": epoch.learning_rate}
        for name, value in values.items():
            if not _same(value, row.get(name)):
                found[f"epoch {number}: {name}"] = row.get(name), value
    return found
