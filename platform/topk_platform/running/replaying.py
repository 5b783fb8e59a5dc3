"""One recorded trial run again, alone and in this process."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from topk_platform.code_version import loaded_version
from topk_platform.errors import UserError
from topk_platform.identity import Identity
from topk_platform.records import Found, Ledger, Row, Store, find
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
        differing: The names of the metrics whose values are not bit for bit the same.
        code_version: The arm's code version now, which may differ from the record's.
        environment: How the machine and its packages differ from the record's; empty if they do not.
    """

    found: Found
    record: TrialRecord
    differing: tuple[str, ...]
    code_version: str
    environment: str


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
        record = finish(run_trials(trials))[[trial.key for trial in trials].index(found.trial.key)]
    here = Identity(environment=environment(found.trial.device)).excludes(found.row)
    return Replay(found, record, _differing(found.row, record), version, here)


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


def _differing(row: Row, record: TrialRecord) -> tuple[str, ...]:
    now = {f"validation.{name}": value for name, value in record.validation.items()}
    now |= {f"test.{name}": value for name, value in (record.test or {}).items()}
    before = {name: value for name, value in row.items() if name in now}
    changed = [name for name in now if now[name] != before.get(name)]
    return tuple(changed if record.status == row["status"] else ["status", *changed])
