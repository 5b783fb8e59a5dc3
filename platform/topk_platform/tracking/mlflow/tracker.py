"""The tracker that writes a study to MLflow."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator

from topk_platform.errors import UserError
from topk_platform.tracking.mlflow.answering import check_tracking
from topk_platform.tracking.tracker import StudyResult, TrackedStudy, TrackedTrial, Tracker

__all__ = ["MlflowTracker"]

_DEFAULTS = {
    # By default MLflow waits two minutes for an answer and tries seven times, which is too long at the end of a study.
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "15",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    # A connection that was made while the disk was read-only would stay read-only, so each use makes a new one.
    "MLFLOW_SQLALCHEMYSTORE_POOLCLASS": "NullPool",
    # Otherwise it prints every run's address, with the server's password if the address has one.
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}


class MlflowTracker(Tracker):
    """A tracker that writes a study to MLflow: an experiment, a parent run per arm, a child run per trial.

    The experiment has the study's name and, as a tag, the ledger's identity, by which later runs find it. If two
    studies on a server have the same name, the second experiment's name also has a part of its identity, and neither
    study changes the other's runs. If somebody deletes the experiment, the next run fills a new one of such a name,
    because MLflow keeps the name of a deleted experiment. The
    tag ``topk.key`` identifies a trial's run, which is complete when its status is no longer running. A run that was
    cut off by a kill is deleted and written again, so nothing appears twice. The tag ``topk.group`` is the
    configuration without the seed.

    Args:
        location: MLflow's tracking URI; by default a sqlite database in a local store.
    """

    title = "MLflow"

    def __init__(self, location: str | None = None) -> None:
        self._location = location

    def check(self, study: TrackedStudy) -> None:
        """Raise ``UserError`` unless MLflow answers; a database in the store needs no answer, but a sound path."""
        if self._location is not None or study.folder is None:
            check_tracking(self._location)
        elif "?" in str(study.folder):
            raise UserError(
                f"store {str(study.folder)!r} cannot hold MLflow's database, because an address of sqlite ends at the "
                "'?': choose another --store, give --mlflow URI, or take --track none"
            )

    def begin(self, study: TrackedStudy) -> Iterator[str]:
        """Open or create the experiment; yield the keys of the trials whose runs are complete."""
        for name, value in _DEFAULTS.items():
            os.environ.setdefault(name, value)
        from topk_platform.tracking.mlflow.writing import Experiment  # noqa: PLC0415 - seconds, in the feed's thread

        self._experiment = Experiment(study, self._location)
        yield from self._experiment.complete()

    def started(self) -> dict[str, int]:
        """Return when the trials started whose runs are complete."""
        return self._experiment.started

    def remove(self, keys: Collection[str]) -> None:
        """Delete the runs of trials, and the models that they logged; MLflow keeps deleted runs in its bin."""
        self._experiment.remove(keys)

    def trial_ended(self, trial: TrackedTrial) -> None:
        """Write a trial's run, as a child of its arm's run."""
        self._experiment.write_trial(trial)

    def study_ended(self, result: StudyResult) -> None:
        """Write the arms' results and the tables and, if there are any, the report and plots."""
        self._experiment.write_result(result)
