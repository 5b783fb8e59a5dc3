"""A study's searches as a journal file of Optuna."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState, create_trial

from topk_platform.protocol.suggest import to_optuna
from topk_platform.records.history import ArmHistory
from topk_platform.results.from_store import read
from topk_platform.specs import Study

__all__ = ["optuna_journal"]

_STATES = {"completed": TrialState.COMPLETE, "pruned": TrialState.PRUNED}


def optuna_journal(study: Study, *, store: str | Path = "runs") -> bytes:
    """Return a study's searches as an Optuna journal file, with one Optuna study for each arm that searches.

    ``optuna-dashboard FILE`` shows it; ``optuna.load_study(study_name=ARM, storage=JournalStorage(JournalFileBackend(
    FILE)))`` opens it for ``optuna.visualization``. Pruned trials have their values by epoch. Diverged and failed
    trials have the state FAIL, although the search itself counts them as pruned. Every trial has its key and its
    status as attributes.

    Args:
        study: The study.
        store: Folder or URI of the results.

    Raises:
        UserError: if the store has no results of the study.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    histories = read(study, store, needed=True, curves=True).histories
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # Optuna warns that names of metrics are experimental.
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        file = Path(folder) / "journal"
        storage = JournalStorage(JournalFileBackend(str(file)))
        for history in histories.values():
            if history.arm.is_searched:
                name = history.arm.name
                made = optuna.create_study(storage=storage, study_name=name, direction="maximize")
                made.set_metric_names([f"validation.{history.arm.metric}"])
                made.set_user_attr("topk.study", study.name)
                made.add_trials(_frozen(history))
        return file.read_bytes() if file.exists() else b""


def _frozen(history: ArmHistory) -> list[FrozenTrial]:
    """Return an arm's search trials as Optuna's, in the order of their numbers."""
    distributions, frozen = to_optuna(history.arm.loss.space), []
    for number, ended in sorted(history.ended().items()):
        row = history.search[number]
        frozen.append(
            create_trial(
                state=_STATES.get(ended.status, TrialState.FAIL),
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
