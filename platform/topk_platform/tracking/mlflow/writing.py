"""A study's experiment in MLflow: the runs of its arms, of its trials and of its tables."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Collection, Iterator, Mapping
from itertools import chain, count
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param

from topk_platform.records.artifacts.files import artifact_name
from topk_platform.tracking.mlflow.arms import NOTE, log_data, replace_arm, write_arm
from topk_platform.tracking.mlflow.artifacts import Artifacts
from topk_platform.tracking.mlflow.database import SQLITE, silence, tracking_uri
from topk_platform.tracking.mlflow.models import forget_models, log_model
from topk_platform.tracking.tracker import StudyResult, TrackedStudy, TrackedTrial
from topk_platform.tracking.trials import milliseconds

__all__ = ["Experiment", "make_database"]

_RUN_STATUS = {"completed": "FINISHED", "pruned": "KILLED", "diverged": "FAILED", "failed": "FAILED"}
_PARENT = "mlflow.parentRunId"
_LEDGER = "topk.ledger"
_DRAWN = "topk.drawn"  # the tag with the digest of the tables from which the report and plots were drawn


class Experiment:
    """The experiment of a study, opened or created.

    Args:
        study: The study.
        location: MLflow's tracking URI; by default a sqlite database in a local store.

    Attributes:
        started: When the trials started whose runs :meth:`complete` found, by key, in whole seconds since 1970.
    """

    def __init__(self, study: TrackedStudy, location: str | None) -> None:
        silence()
        store = study.folder or Path()
        uri = location or tracking_uri(store)
        self._study = study
        # The store's folder, if the database is in it.
        self._own = study.folder if uri == tracking_uri(store) else None
        self._parents: dict[str, str] = {}
        self._trials: dict[str, str] = {}
        self.started: dict[str, int] = {}
        self._tables = self._drawn = ""
        make_database(uri)
        self._client = MlflowClient(tracking_uri=uri)
        folder = None if self._own is None else self._own / "mlflow-artifacts" / study.identity
        self._artifacts = Artifacts(self._client, folder)
        self._id = self._find_experiment()

    def complete(self) -> Iterator[str]:
        """Yield the keys of the trials whose runs are complete; delete the runs that a kill left incomplete."""
        left: list[Any] = []
        for run in self._runs():
            if not self._is_whole(run):
                left.append(run)
            elif key := run.data.tags.get("topk.key"):
                self.started[key] = run.info.start_time // 1000
                yield key
        for run in left:  # only now, because a page of runs begins at a position, which a deletion moves
            self._clear(run.data.tags.get("topk.parent"), run.info.run_id)

    def _find_experiment(self) -> str:
        """Return the id of the ledger's experiment, which may have been renamed; make one if there is none."""
        identity = self._study.identity
        own = self._client.search_experiments(
            filter_string=f"tags.`{_LEDGER}` = '{identity}'", order_by=["creation_time ASC"], max_results=1
        )
        return str(own[0].experiment_id) if own else self._new_experiment(self._free_name(), identity)

    def _free_name(self) -> str:
        """Return the first name that no experiment has, not even a deleted one."""
        study, short = self._study.name, self._study.identity[:8]
        names = chain((study, f"{study} ({short})"), (f"{study} ({short}, {n})" for n in count(2)))
        return next(name for name in names if self._client.get_experiment_by_name(name) is None)

    def _new_experiment(self, name: str, identity: str) -> str:
        # With this kind, MLflow's page of the experiment shows metrics first, not traces.
        tags = {"mlflow.experimentKind": "custom_model_development", _LEDGER: identity}
        location = None if self._artifacts.folder is None else f"mlflow-artifacts:/{identity}"
        return str(self._client.create_experiment(name, location, tags=tags))

    def _runs(self) -> Iterator[Any]:
        token: str | None = None
        while token is None or token:
            page = self._client.search_runs([self._id], max_results=1000, page_token=token)
            self._study.progressed()
            yield from page
            token = page.token or ""

    def _is_whole(self, run: Any) -> bool:
        """Remember a run; return False if a kill cut it off, or a newer run of the same arm or trial is there."""
        tags, run_id = run.data.tags, str(run.info.run_id)
        if "topk.parent" in tags:
            self._tables = tags.get("topk.tables", self._tables)
            self._drawn = tags.get(_DRAWN, self._drawn)
            return self._parents.setdefault(tags["topk.parent"], run_id) == run_id
        if "topk.key" in tags:
            is_cut_off = run.info.status == "RUNNING"
            return not is_cut_off and self._trials.setdefault(tags["topk.key"], run_id) == run_id
        return True

    def _clear(self, arm: str | None, run_id: str) -> None:
        if arm is None:
            self._delete(run_id)
        else:
            replace_arm(self._client, self._id, run_id, self._parents[arm])

    def remove(self, keys: Collection[str]) -> None:
        """Delete the runs of trials, and the models that they logged; MLflow keeps deleted runs in its bin."""
        for key in keys:
            self._delete(self._trials.pop(key))
            self._study.progressed()

    def _delete(self, run_id: str) -> None:
        forget_models(self._client, run_id)
        self._client.delete_run(run_id)

    def _parent(self, key: str, name: str, tags: Mapping[str, str]) -> str:
        if key not in self._parents:
            run = self._client.create_run(self._id, run_name=name, tags={**tags, "topk.parent": key})
            self._client.set_terminated(run.info.run_id)
            self._parents[key] = run.info.run_id
        return self._parents[key]

    def write_trial(self, trial: TrackedTrial) -> None:
        """Write a trial's run, as a child of its arm's run."""
        names = {name: str(getattr(trial, name)) for name in ("arm", "regime", "model", "loss")}
        parent = self._parent(trial.arm_id, trial.arm, names)
        shown = ("key", "phase", "number", "seed", "status", "code_version", "reason", "group")
        tags = {f"topk.{name}": str(getattr(trial, name)) for name in shown}
        run = self._client.create_run(
            self._id,
            start_time=milliseconds(trial.started),
            run_name=trial.name,
            tags={**names, **tags, _PARENT: parent},
        )
        self._write_values(run.info.run_id, trial)
        log_data(self._client, run.info.run_id, trial.dataset)
        self._write_artifacts(run.info.run_id, trial)
        self._client.set_terminated(run.info.run_id, _RUN_STATUS[trial.status], milliseconds(trial.ended))
        self._trials[trial.key] = run.info.run_id

    def _write_values(self, run_id: str, trial: TrackedTrial) -> None:
        params = [Param(name, str(value)) for name, value in trial.parameters.items()]
        # MLflow's client splits what is more than a server takes at once.
        self._client.log_batch(run_id, metrics=[*_metrics(trial)], params=params)

    def _write_artifacts(self, run_id: str, trial: TrackedTrial) -> None:
        config = json.dumps(json.loads(trial.config), indent=1)
        self._artifacts.write_run(run_id, "trial.json", config.encode())
        if (content := trial.network()) is not None:
            log_model(self._id, run_id, trial, content, self._artifacts, self._stored(trial.key))

    def _stored(self, key: str) -> Path | None:
        own = self._own
        return None if own is None else own / self._study.name / artifact_name("network", key)

    def write_result(self, result: StudyResult) -> None:
        """Write the arms' results and the tables and, if there are any, the report and plots.

        Tables that the experiment already has are not written again.
        """
        if not result.files:
            return
        if self._tables != result.digest:
            self._write_tables(result)
        if result.extras is not None and self._drawn != result.digest:
            self._write_extras(result)

    def _study_run(self) -> str:
        name = self._study.name
        return self._parent("study", f"{name} tables", {"topk.study": name})

    def _write_tables(self, result: StudyResult) -> None:
        run_id = self._study_run()
        for name, text in result.files.items():
            self._artifacts.write_run(run_id, name, text.encode())
            self._study.progressed()
        for arm_id, arm in result.arms.items():
            if arm_id in self._parents:
                self._parents[arm_id] = write_arm(self._client, self._parents[arm_id], arm)
                self._study.progressed()
        if table := result.files.get("table.md"):
            self._client.set_tag(run_id, NOTE, table)
        self._client.set_tag(run_id, "topk.tables", result.digest)
        self._tables = result.digest

    def _write_extras(self, result: StudyResult) -> None:
        extras = None if result.extras is None else result.extras()
        if extras is None:
            return
        run_id = self._study_run()
        for name, content in extras.items():
            self._artifacts.write_run(run_id, name, content)
            self._study.progressed()
        self._client.set_tag(run_id, _DRAWN, result.digest)
        self._drawn = result.digest


def _metrics(trial: TrackedTrial) -> Iterator[Metric]:
    """Yield the values by epoch, then the results, which MLflow shows and sorts by.

    MLflow takes the last value for a metric's result. If the weights of an earlier epoch were kept, the result is
    another value than that of the last epoch, and follows it.
    """
    drawn: dict[str, Metric] = {}
    for point in trial.curve:
        for name, value in point.values.items():
            drawn[name] = Metric(name, value, point.milliseconds, point.epoch)
            yield drawn[name]
    ended = milliseconds(trial.ended) or int(1000 * time.time())
    for name, value in trial.metrics.items():
        last = drawn.get(name)
        if last is None:
            yield Metric(name, value, ended, 0)
        elif last.value != value:
            yield Metric(name, value, max(ended, last.timestamp + 1), last.step)


def make_database(uri: str) -> None:
    """Create a sqlite database in one step, because MLflow cannot use one that a kill left incomplete."""
    name, mark, options = uri.removeprefix(SQLITE).partition("?")
    path = Path(name)
    if not uri.startswith(SQLITE) or path.exists():
        return
    hidden = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    MlflowClient(tracking_uri=f"{SQLITE}{hidden}{mark}{options}")
    try:
        path.hardlink_to(hidden)  # unlike a rename, it never replaces what another process has made meanwhile
    except FileExistsError:
        pass  # it was made by a run of another study, which writes to it
    except OSError:  # this file system cannot link, so the look and the rename are two steps
        if not path.exists():
            hidden.rename(path)
    hidden.unlink(missing_ok=True)
