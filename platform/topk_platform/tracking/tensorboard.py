"""The tracker that writes a study to TensorBoard's log files."""

from __future__ import annotations

import importlib.util
import re
import shutil
import uuid
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from topk_platform.errors import UserError
from topk_platform.specs import Status
from topk_platform.tracking.tracker import StudyResult, TrackedStudy, TrackedTrial, Tracker

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

__all__ = ["TensorboardTracker"]

_FILES = "events.out.tfevents.*"
# Arms have folders beside these; no regime has a space in its name.
_TABLES = "results of study"
_ARMS = "results of arms"
_STARTED = re.compile(r"\.started-(\d+)\.[^.]+$")
_HIDDEN = re.compile(r"\.[0-9a-f]{32}\.tmp")
_FAILED = ("diverged", "failed")


class TensorboardTracker(Tracker):
    """A tracker that writes a study to TensorBoard: a run per trial, in folders by arm, configuration and seed.

    A trial's run is ``STUDY/ARM/PHASE NUMBER/seed SEED KEY``, with the first six characters of the trial's key. On the
    page *HParams*, the seeds of one configuration are one row with their mean. A run is written under a hidden name,
    which TensorBoard ignores, and renamed when it is complete. So a kill leaves no incomplete run and no run twice.

    Args:
        location: The folder that ``tensorboard --logdir`` opens; by default ``tensorboard`` in a local store.
    """

    title = "TensorBoard"

    def __init__(self, location: str | None = None) -> None:
        self._location = location

    def _folder(self, study: TrackedStudy) -> Path:
        if self._location is None and study.folder is None:
            raise UserError(
                "track tensorboard needs a folder if the store is not a folder: give --track tensorboard=FOLDER"
            )
        return Path(self._location or Path(study.folder or "", "tensorboard")) / study.name

    def check(self, study: TrackedStudy) -> None:
        """Raise ``UserError`` unless TensorBoard is installed and there is a folder for its files."""
        if importlib.util.find_spec("tensorboard") is None:
            raise UserError("track tensorboard needs TensorBoard: pip install 'topk-studies[tensorboard]'")
        self._folder(study)

    def begin(self, study: TrackedStudy) -> Iterator[str]:
        """Delete the runs that a kill left incomplete; yield the keys of the trials that are complete."""
        self._study, self._root = study, self._folder(study)
        self._root.mkdir(parents=True, exist_ok=True)
        for folder in self._root.glob(".*.tmp"):
            if _HIDDEN.fullmatch(folder.name):
                shutil.rmtree(folder)
        self._held = _runs(self._root)
        yield from list(self._held)

    def started(self) -> dict[str, int]:
        """Return when the trials started, as the names of their log files say."""
        matches = {
            key: _STARTED.search(file.name)
            for key, folder in self._held.items()
            for file in folder.glob(_FILES)
        }
        return {key: int(match[1]) for key, match in matches.items() if match is not None}

    def remove(self, keys: Collection[str]) -> None:
        """Delete the log files of trials."""
        for key in keys:
            shutil.rmtree(self._held.pop(key))

    def trial_ended(self, trial: TrackedTrial) -> None:
        """Write a trial's run."""
        folder = (
            self._root / trial.arm / f"{trial.phase} {trial.number}" / f"seed {trial.seed} {trial.key[:6]}"
        )
        with self._writing(folder, f"started-{trial.began}.{trial.key}") as writer:
            for point in trial.curve:
                for name, value in point.values.items():
                    writer.add_scalar(name, value, point.epoch, point.milliseconds / 1000)
            last = trial.curve[-1].epoch if trial.curve else 0
            ended = trial.ended.timestamp()
            for name, value in trial.metrics.items():
                writer.add_scalar(_final(name), value, last, ended)
            described = {
                name: str(getattr(trial, name)) for name in ("regime", "model", "loss", "phase", "status")
            }
            finals = {_final(name): value for name, value in trial.metrics.items()}
            _add_parameters(writer, {**trial.parameters, **described}, finals, trial.group, trial.status)
        self._held[trial.key] = folder

    def study_ended(self, result: StudyResult) -> None:
        """Write the arms' results, one run each, and the tables as texts."""
        if not result.files or _results(self._root) == result.digest:
            return
        for old in self._root.glob("results of *"):
            shutil.rmtree(old)
        for arm in result.arms.values():
            with self._writing(self._root / _ARMS / arm.name, "arm") as writer:
                for metric, value in arm.metrics.items():
                    writer.add_scalar(metric, value, 0)
                writer.add_text("arm", arm.note)
        with self._writing(self._root / _TABLES, result.digest) as writer:
            for name, text in result.files.items():
                if name.endswith(".md"):
                    writer.add_text(name, text)

    @contextmanager
    def _writing(self, folder: Path, suffix: str) -> Iterator[SummaryWriter]:
        """Yield the writer of a run's log file, whose name ends in ``suffix``; the file appears in one step."""
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - seconds of import

        hidden = self._root / f".{uuid.uuid4().hex}.tmp"
        with SummaryWriter(hidden, filename_suffix=f".{suffix}") as writer:
            yield writer
        folder.parent.mkdir(parents=True, exist_ok=True)
        hidden.rename(folder)
        self._study.progressed()


def _final(name: str) -> str:
    """Return the name of a final result; a final validation must not have the name of its curve."""
    return f"final.{name}" if name.startswith("validation.") else name


def _runs(folder: Path) -> dict[str, Path]:
    """Return the folders of complete trials by their keys, which are at the end of the names of log files."""
    files = (path for path in folder.glob(f"**/{_FILES}") if not _HIDDEN.search(str(path)))
    return {
        path.name.rpartition(".")[2]: path.parent for path in files if path.parent.name.startswith("seed ")
    }


def _results(folder: Path) -> str:
    """Return the digest of the tables that were written last; empty if none were."""
    return next((path.name.rpartition(".")[2] for path in (folder / _TABLES).glob(_FILES)), "")


def _add_parameters(
    writer: SummaryWriter,
    parameters: Mapping[str, object],
    metrics: Mapping[str, float],
    group: str,
    status: Status,
) -> None:
    """Add a run's parameters, results and group for the page *HParams*.

    Torch's own function does not support groups. The page treats the runs of one group as repetitions of one trial, and
    shows their mean.
    """
    from tensorboard.plugins.hparams.api_pb2 import Status as PageStatus  # noqa: PLC0415 - as above
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData  # noqa: PLC0415 - as above
    from torch.utils.tensorboard.summary import hparams  # noqa: PLC0415 - as above

    experiment, start, end = hparams(dict(parameters), dict(metrics))
    content = start.value[0].metadata.plugin_data
    data = HParamsPluginData.FromString(content.content)
    data.session_start_info.group_name = group
    content.content = data.SerializeToString()
    content = end.value[0].metadata.plugin_data
    data = HParamsPluginData.FromString(content.content)
    data.session_end_info.status = (
        PageStatus.STATUS_FAILURE if status in _FAILED else PageStatus.STATUS_SUCCESS
    )
    content.content = data.SerializeToString()
    for summary in (experiment, start, end):
        writer.file_writer.add_summary(summary)
