"""A study's searches as an Optuna journal file, for Optuna's dashboard and plots."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState, create_trial

from topk_platform.errors import UserError
from topk_platform.evidence.tidy import Written, writing
from topk_platform.protocol.suggest import to_optuna
from topk_platform.records import ArmHistory
from topk_platform.results.from_store import read
from topk_platform.specs import Study

__all__ = ["export_optuna"]


def export_optuna(study: Study, to: str | Path, *, store: str | Path = "runs") -> Written:
    """Write a study's searches as an Optuna journal file, with one Optuna study for each arm that searches.

    ``optuna-dashboard FILE`` shows it; ``optuna.load_study(study_name=ARM, storage=JournalStorage(JournalFileBackend(
    FILE)))`` opens it for ``optuna.visualization``. Pruned trials have their values by epoch. Diverged and failed
    trials have the state FAIL, although the search itself counts them as pruned. Every trial has its key and its
    status as attributes.

    Args:
        study: The study.
        to: The journal file; it must not exist yet, because Optuna would add to it.
        store: Folder or URI of the results.

    Raises:
        UserError: if the store has no results of the study, or the file exists or cannot be written.
    """
    path = Path(to).expanduser()
    with writing(path):
        if path.exists() or not path.absolute().parent.is_dir():
            raise UserError(f"--to must be a new file in an existing folder, got {str(path)!r}")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    histories = read(study, store, needed=True, curves=True).histories
    searched = [history for history in histories.values() if history.arm.is_searched]
    with writing(path), tempfile.TemporaryDirectory(prefix=".", suffix=".tmp", dir=path.parent) as folder:
        part = Path(folder) / path.name  # if it breaks off, nothing is left that a second try would refuse
        storage = JournalStorage(JournalFileBackend(str(part)))
        trials = sum(_add(storage, study.name, history) for history in searched)
        part.replace(path)
    return Written((path,), trials)


def _add(storage: JournalStorage, study: str, history: ArmHistory) -> int:
    """Add an arm's search as an Optuna study; return how many trials it has."""
    arm, trials = history.arm, _frozen(history)
    optuna_study = optuna.create_study(storage=storage, study_name=arm.name, direction="maximize")
    with warnings.catch_warnings():  # Optuna warns that names of metrics are experimental
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        optuna_study.set_metric_names([f"validation.{arm.metric}"])
    optuna_study.set_user_attr("topk.study", study)
    optuna_study.add_trials(trials)
    return len(trials)


def _frozen(history: ArmHistory) -> list[FrozenTrial]:
    """Return an arm's search trials as Optuna's, in the order of their numbers."""
    states = {"completed": TrialState.COMPLETE, "pruned": TrialState.PRUNED}
    distributions, frozen = to_optuna(history.arm.loss.space), []
    for number, ended in sorted(history.ended().items()):
        row = history.search[number]
        frozen.append(
            create_trial(
                state=states.get(ended.status, TrialState.FAIL),
                value=ended.objective if ended.status == "completed" else None,
                params=dict(ended.values),
                distributions={name: distributions[name] for name in ended.values},
                intermediate_values=dict(ended.curve),
                user_attrs={
                    "topk.key": row["key"],
                    "topk.number": number,
                    "topk.status": ended.status,
                    "topk.reason": row["reason"],
                    "topk.train_seconds": row["train_seconds"],
                },
            )
        )
    return frozen
