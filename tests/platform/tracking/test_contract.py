"""Our own trackers keep the contract of trackers, with their real libraries."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer

from topk_platform.testing import TrackerContract
from topk_platform.testing.trackers import _TRIALS
from topk_platform.tracking import TrackedStudy, Tracker, tracking_uri
from topk_platform.tracking.mlflow.tracker import MlflowTracker
from topk_platform.tracking.tensorboard import TensorboardTracker
from topk_platform.tracking.wandb import WandbTracker


class OwnContract(TrackerContract):
    """What only our own trackers must do."""

    def test_it_says_of_every_trial_when_it_started(self, tmp_path: Path) -> None:
        """Otherwise it would keep the result of a trial that was trained again while it was not attached."""
        study = TrackedStudy("contract", "0a1b2c3d4e5f", tmp_path)
        self._write(tmp_path, study, *_TRIALS)
        tracker = self.tracker(tmp_path)
        list(tracker.begin(study))
        assert tracker.started() == {trial.key: trial.began for trial in _TRIALS}
        tracker.close()


@pytest.mark.slow  # MLflow makes a database in each test
class TestMlflow(OwnContract):
    def tracker(self, folder: Path) -> Tracker:
        return MlflowTracker()

    def shown(self, folder: Path) -> Collection[str]:
        from mlflow import MlflowClient

        client = MlflowClient(tracking_uri(folder))
        experiment = client.get_experiment_by_name("contract")
        runs = client.search_runs([experiment.experiment_id], max_results=1000)
        return [run.data.tags["topk.key"] for run in runs if "topk.key" in run.data.tags]


class TestTensorboard(OwnContract):
    def tracker(self, folder: Path) -> Tracker:
        return TensorboardTracker()

    def shown(self, folder: Path) -> Collection[str]:
        """What TensorBoard itself takes for runs, by the keys in the names of their files."""
        result = EventMultiplexer().AddRunsFromDirectory(str(folder / "tensorboard")).Reload()
        paths = [folder / "tensorboard" / name for name in result.Runs() if "seed " in name]
        return [file.name.rpartition(".")[2] for path in paths for file in path.iterdir()]


@pytest.mark.slow  # W&B's service takes half a minute of a core
class TestWandb(OwnContract):
    @pytest.fixture(autouse=True)
    def offline(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("WANDB_MODE", "offline")

    def tracker(self, folder: Path) -> Tracker:
        return WandbTracker()

    def shown(self, folder: Path) -> Collection[str]:
        """What `wandb sync` would send: the runs in the study's folder, with their logs."""
        files = (folder / "wandb" / "contract").glob("offline-run-*/run-*.wandb")
        keys = [file.stem.split("-")[1] for file in files]
        return [key for key in keys if not key.startswith("study")]
