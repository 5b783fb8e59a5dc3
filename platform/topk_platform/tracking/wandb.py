"""The tracker that writes a study to Weights & Biases."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from topk_platform.errors import UserError, reason
from topk_platform.specs import digest
from topk_platform.tracking.tracker import StudyResult, TrackedStudy, TrackedTrial, Tracker

if TYPE_CHECKING:
    from wandb import Run

__all__ = ["WandbTracker"]

_OFFLINE = re.compile(r"offline-run-\d+_\d+-(\w+-\w+)")
_MODE = "WANDB_MODE"
_FAILED = ("diverged", "failed")
_RESULTS = "study"
_SETTINGS: dict[str, Any] = {
    # Send nothing about this machine to a server, and print nothing.
    "console": "off",
    "disable_git": True,
    "disable_job_creation": True,
    "save_code": False,
    "silent": True,
    "x_disable_machine_info": True,
    "x_disable_meta": True,
    "x_disable_stats": True,
}


class WandbTracker(Tracker):
    """A tracker that writes a study to Weights & Biases: a project per study, a run per trial, groups by configuration.

    A run's group is the configuration without the seed, and its job type is the phase. With
    ``WANDB_MODE=offline``, runs are written to the folder ``wandb/STUDY`` of a local store, and ``wandb sync`` sends
    them later. An offline run is written elsewhere and moved there when it is complete.

    Args:
        location: ``PROJECT`` or ``ENTITY/PROJECT``; by default the study's name.
    """

    title = "Weights & Biases"

    def __init__(self, location: str | None = None) -> None:
        self._location = location

    def check(self, study: TrackedStudy) -> None:
        """Raise ``UserError`` unless wandb is installed, and either has a login or is offline with a local store."""
        if importlib.util.find_spec("wandb") is None:
            raise UserError("track wandb needs Weights & Biases: pip install 'topk-studies[wandb]'")
        if (mode := os.environ.get(_MODE, "")) not in ("", "online", "offline"):
            raise UserError(f"{_MODE} must be online or offline for track wandb, got {mode!r}")
        _forget_settings()
        if _offline():
            _folder(study)
            return
        import wandb  # noqa: PLC0415 - seconds of import

        try:
            known = wandb.login(prompt=False, verify=False)
        except wandb.Error as error:  # such as a key that is too short
            raise UserError(f"track wandb: {reason(error)}") from error
        if not known:
            raise UserError("track wandb needs a login: run `wandb login`, or set WANDB_MODE=offline")

    def begin(self, study: TrackedStudy) -> Iterator[str]:
        """Delete the runs that a kill left incomplete; yield the keys of the trials that are complete."""
        self._study = study
        self._runs: dict[str, Callable[[], object]] = {}  # how to delete each
        self._started: dict[str, int] = {}
        if _offline():
            folder = _folder(study)
            for half in folder.glob(".*.tmp"):
                shutil.rmtree(half)
        for run_id, delete in _offline_runs(_folder(study)) if _offline() else self._online_runs():
            key, _, began = run_id.partition("-")
            self._runs[key] = delete
            if began.isdigit() and not key.startswith(_RESULTS):
                self._started[key] = int(began)
        yield from list(self._runs)

    def started(self) -> dict[str, int]:
        """Return when the trials started, as the ids of their runs say."""
        return self._started

    def _online_runs(self) -> Iterator[tuple[str, Callable[[], object]]]:
        """Yield the id of each complete run on the server, and how to delete it.

        A run that was cut off has the state running or crashed.
        """
        import wandb  # noqa: PLC0415 - as above

        entity, project = self._project()
        path = "/".join(filter(None, (entity, project)))
        try:
            for run in wandb.Api().runs(path, filters={"config.topk_ledger": self._study.identity}):
                self._study.progressed()
                if run.state in ("finished", "failed"):
                    yield run.id, run.delete
        except ValueError:  # there is no such project yet
            return

    def _project(self) -> tuple[str | None, str]:
        entity, _, project = (self._location or "").rpartition("/")
        return entity or None, project or self._study.name

    def remove(self, keys: Collection[str]) -> None:
        """Delete the runs of trials."""
        for key in keys:
            self._runs.pop(key)()
            self._study.progressed()

    def trial_ended(self, trial: TrackedTrial) -> None:
        """Write a trial's run."""
        shown = ("key", "arm", "regime", "model", "loss", "phase", "number", "seed", "status", "code_version")
        config = {f"topk_{name}": getattr(trial, name) for name in shown}
        # The id needs the start time: a trial that is trained again has the same key, and a server refuses the id of a
        # deleted run.
        run_id = f"{trial.key}-{trial.began}"
        with self._run(
            run_id,
            name=trial.name,
            group=trial.group,
            job_type=trial.phase,
            config={**trial.parameters, **config},
            tags=[trial.phase, trial.status],
            failed=trial.status in _FAILED,
        ) as run:
            for point in trial.curve:
                run.log({**point.values, "epoch": point.epoch}, step=point.epoch)
            run.summary.update(dict(trial.metrics))
            if trial.reason:
                run.summary["reason"] = trial.reason

    def study_ended(self, result: StudyResult) -> None:
        """Write a run with the arms' results as a table."""
        key = f"{_RESULTS}{digest([self._study.identity, result.digest])}"  # used like a trial's key
        if not result.files or key in self._runs:
            return
        import wandb  # noqa: PLC0415 - as above

        self.remove([old for old in self._runs if old.startswith(_RESULTS)])
        names = sorted({name for arm in result.arms.values() for name in arm.metrics})
        table = wandb.Table(columns=["arm", *names])
        for arm in result.arms.values():
            table.add_data(arm.name, *(arm.metrics.get(name) for name in names))
        name = f"{self._study.name} tables"
        # Results may be those before the last ones, and a server refuses the id of a deleted run.
        run_id = f"{key}-{uuid.uuid4().hex[:8]}"
        with self._run(run_id, name=name, group=name, job_type="study", config={}, tags=["study"]) as run:
            run.log({"arms": table})

    @contextmanager
    def _run(
        self, run_id: str, *, config: Mapping[str, Any], failed: bool = False, **described: Any
    ) -> Iterator[Run]:
        """Yield a run and finish it after the block; an offline run appears in one step."""
        import wandb  # noqa: PLC0415 - as above

        entity, project = self._project()
        with _hidden(self._study) as folder:
            run = wandb.init(
                entity=entity,
                project=project,
                id=run_id,
                dir=folder,
                config={**config, "topk_ledger": self._study.identity},
                settings=wandb.Settings(**_SETTINGS),
                reinit="create_new",
                **described,
            )
            try:
                yield run
            except BaseException:
                run.finish(exit_code=1)
                if not _offline():  # a run that has finished would count as complete
                    _delete(run.path)
                raise
            run.finish(exit_code=int(failed))
            kept = partial(shutil.rmtree, self._moved(folder)) if _offline() else partial(_delete, run.path)
            self._runs[run_id.partition("-")[0]] = kept
        self._study.progressed()

    def _moved(self, folder: Path) -> Path:
        """Move an offline run to the folder of complete runs; return its folder."""
        (written,) = folder.glob("wandb/offline-run-*")
        return written.rename(_folder(self._study) / written.name)


def _forget_settings() -> None:
    """Make wandb read its environment variables again, which it otherwise reads once per process.

    An earlier study in this process, such as a cell of a notebook, may have had another mode. This ends all runs of the
    process, so it is done only if the mode has changed.
    """
    wandb = sys.modules.get("wandb")
    if wandb is None or wandb.run is not None:
        return
    if wandb.setup().settings.mode != (os.environ.get(_MODE) or "online"):
        wandb.teardown()


def _delete(path: str) -> None:
    """Delete a run on the server; the object that wrote it cannot."""
    import wandb  # noqa: PLC0415 - as above

    wandb.Api().run(path).delete()


def _offline() -> bool:
    return os.environ.get(_MODE) == "offline"


def _folder(study: TrackedStudy) -> Path:
    """Return the folder of a study's offline runs."""
    if study.folder is None:
        raise UserError(
            "track wandb cannot write offline runs to a store that is not a folder: unset WANDB_MODE"
        )
    return study.folder / "wandb" / study.name


@contextmanager
def _hidden(study: TrackedStudy) -> Iterator[Path]:
    """Yield a folder for wandb's own files, which is deleted afterwards."""
    parent = None
    if _offline():
        parent = _folder(study)
        parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".", suffix=".tmp", dir=parent) as folder:
        yield Path(folder)


def _offline_runs(folder: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the id of each complete offline run, and how to delete it."""
    runs = ((_OFFLINE.fullmatch(path.name), path) for path in folder.glob("offline-run-*"))
    yield from ((match[1], partial(shutil.rmtree, path)) for match, path in runs if match is not None)
