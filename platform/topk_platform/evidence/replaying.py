"""One recorded trial run again, alone and in this process."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topk_platform.code_version import loaded_version
from topk_platform.errors import UserError
from topk_platform.identity import Identity
from topk_platform.records import DamagedError, Found, Ledger, Row, Store, find, read_ranks
from topk_platform.references import import_reference, is_reference
from topk_platform.specs import Trial, TrialRecord
from topk_platform.trust import Trust

__all__ = ["Replay", "replay", "replay_trusting"]


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


def replay(
    key: str,
    store: str | Path = "runs",
    data: str | Path | None = None,
    *,
    trust: Iterable[str] = (),
) -> Replay:
    """Run a recorded trial again in this process, with its whole ensemble if it had one, and compare.

    Nothing is written.

    On the same machine, with the same versions, on the CPU, every metric comes out the same bit for bit.

    The trial's record names the code that trains it. Code of this package and modules that are files of the user's own
    are run as they are. A module of an installed package or of Python itself has to be trusted by name.

    Args:
        key: The trial's key, or its first letters.
        store: Folder or URI of the results.
        data: The folder of datasets; by default ``TOPK_DATA``, or else ``data``.
        trust: Further modules whose code the record may name, with their submodules.

    Raises:
        UserError: if no trial or several have this key, a module that the trial refers to is not trusted or cannot be
            imported, an argument is none of its function's, or its data are missing or have changed.
    """
    found = find(key, store)
    return replay_trusting(found, store, data, Trust.of(trust).with_own_modules(found.trial.arm))


def replay_trusting(found: Found, store: str | Path, data: str | Path | None, trust: Trust) -> Replay:
    """Run a recorded trial again, as :func:`replay`.

    Args:
        found: The trial.
        store: Folder or URI of the results.
        data: The folder of datasets.
        trust: The code that its record may name.
    """
    trials = _ensemble(found.trial, store)
    for trial in trials:
        trust.check_arm(f"trial {trial.key}", trial.arm)
    # Torch, which a key that is no trial's need not wait for.
    from topk_platform.data import data_at  # noqa: PLC0415
    from topk_platform.training import environment, finish, run_trials  # noqa: PLC0415

    with data_at(data):
        _check_setup(found.trial)
        version = loaded_version(found.trial.arm)
        kept = _Kept()
        records = finish(run_trials(trials, kept))
    record = records[[trial.key for trial in trials].index(found.trial.key)]
    here = Identity(environment=environment(found.trial.device)).excludes(found.row)
    differences = {**_differing(found.row, record), **_differing_epochs(found.epochs, record)}
    if _other_ranks(Store.open(store).at(found.trial.study), found.row, kept):
        differences["ranks"] = (None, None)
    return Replay(found, record, differences, version, here)


class _Kept:
    """Keeps of trials that are trained again the ranks of their test images, in memory, and nothing else."""

    seconds = math.inf
    pauses: Sequence[float] = ()

    def __init__(self) -> None:
        self.ranks: dict[str, Any] = {}

    def load(self, trials: Sequence[Trial]) -> None:
        """Return that there is no checkpoint."""

    def save(self, trials: Sequence[Trial], step: int, state: dict[str, Any]) -> None:
        """Keep no checkpoint."""

    def save_model(self, trial: Trial, model: Any, inputs: Any) -> str:  # noqa: ARG002 - as a keeper has it
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
    """Return whether the ranks of a trial are others than those in the store, where both are there and sound."""
    if row["key"] not in kept.ranks:
        return False
    try:
        before = read_ranks(store, row)
    except DamagedError:  # which status and table tell of
        return False
    now = kept.ranks[row["key"]].numpy()
    return before is not None and not all(
        (old == new).all() for old, new in zip(before[:4], now, strict=True)
    )


def _check_setup(trial: Trial) -> None:
    """Raise ``UserError`` for what is no result of the trial: what it needs cannot be imported, read or called here."""
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
