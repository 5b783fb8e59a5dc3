"""A study's experiment in MLflow: the runs of its arms, of its trials and of its tables."""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param

from topk_platform.records.artifacts.files import artifact_name, read_artifact
from topk_platform.records.ledger.ledger import Ledger
from topk_platform.records.storage.checked_json import DamagedError
from topk_platform.records.table.rows import Row
from topk_platform.specs import Trial, canonical_json, digest
from topk_platform.tracking.arms import NOTE, log_data, replace_arm, write_arm
from topk_platform.tracking.artifacts import Artifacts
from topk_platform.tracking.database import SQLITE, silence, tracking_uri
from topk_platform.tracking.models import forget_models, log_model
from topk_platform.tracking.trials import (
    Dataset,
    curve,
    group,
    milliseconds,
    parameters,
    results,
    results_of_arms,
)

__all__ = ["Experiment", "make_database"]

_RUN_STATUS = {"completed": "FINISHED", "pruned": "KILLED", "diverged": "FAILED", "failed": "FAILED"}
_PARENT = "mlflow.parentRunId"
_LEDGER = "topk.ledger"
_DRAWN = "topk.drawn"  # the tag with the digest of the tables from which the report and plots were drawn
_LOG = logging.getLogger("topk_platform")


class Experiment:
    """The experiment of a study in MLflow, opened or created: a parent run per arm, a child run per trial.

    The experiment has the study's name and, as a tag, the ledger's identity, by which later runs find it. If two
    studies on a server have the same name, the second experiment's name also has a part of its identity, and neither
    study changes the other's runs. If somebody deletes the experiment, the next run fills a new one of such a name,
    because MLflow keeps the name of a deleted experiment. The tag ``topk.key`` identifies a trial's run, which is
    complete when its status is no longer running. A run that was cut off by a kill is deleted and written again, so
    nothing appears twice. The tag ``topk.group`` is the configuration without the seed.

    Args:
        ledger: The study's ledger.
        uri: MLflow's tracking URI.
        store: The store's folder if it is on this machine; the files of the database in it are kept beside it.
        progressed: Called after each step of slow work.

    Attributes:
        started: When the trials started whose runs :meth:`complete` found, by key, in whole seconds since 1970.
    """

    def __init__(
        self, ledger: Ledger, uri: str, store: Path | None, progressed: Callable[[], None] = lambda: None
    ) -> None:
        silence()
        self._ledger, self._name, self._progressed = ledger, ledger.study, progressed
        # The store's folder, if the database is in it.
        self._own = store if store is not None and uri == tracking_uri(store) else None
        self._parents: dict[str, str] = {}
        self._trials: dict[str, str] = {}
        self.started: dict[str, int] = {}
        self._tables = self._drawn = ""
        make_database(uri)
        self._client = MlflowClient(tracking_uri=uri)
        folder = None if self._own is None else self._own / "mlflow-artifacts" / ledger.identity
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
        identity = self._ledger.identity
        own = self._client.search_experiments(
            filter_string=f"tags.`{_LEDGER}` = '{identity}'", order_by=["creation_time ASC"], max_results=1
        )
        return str(own[0].experiment_id) if own else self._new_experiment(self._free_name(), identity)

    def _free_name(self) -> str:
        """Return the first name that no experiment has, not even a deleted one."""
        study, short = self._name, self._ledger.identity[:8]
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
            self._progressed()
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
            self.started.pop(key, None)
            self._progressed()

    def _delete(self, run_id: str) -> None:
        forget_models(self._client, run_id)
        self._client.delete_run(run_id)

    def _parent(self, key: str, name: str, tags: Mapping[str, str]) -> str:
        if key not in self._parents:
            run = self._client.create_run(self._id, run_name=name, tags={**tags, "topk.parent": key})
            self._client.set_terminated(run.info.run_id)
            self._parents[key] = run.info.run_id
        return self._parents[key]

    def write_trial(self, row: Row, epochs: Sequence[Row]) -> None:
        """Write an ended trial's run, as a child of its arm's run.

        Args:
            row: The trial's row.
            epochs: The rows of its epochs.
        """
        names = {name: str(row[name]) for name in ("arm", "regime", "model", "loss")}
        parent = self._parent(row["arm_id"], row["arm"], names)
        shown = ("key", "phase", "number", "seed", "status", "code_version", "reason")
        tags = {"topk.group": group(row), **{f"topk.{name}": str(row[name]) for name in shown}}
        run = self._client.create_run(
            self._id,
            start_time=milliseconds(row["started"]),
            run_name=f"{row['arm']} {row['phase']} {row['number']}.{row['seed']}",
            tags={**names, **tags, _PARENT: parent},
        )
        run_id, trial = run.info.run_id, Trial.from_json(row["config"])
        params = parameters(trial)
        self._client.log_batch(  # MLflow's client splits what is more than a server takes at once
            run_id,
            metrics=[*_metrics(row, results(row, trial), epochs)],
            params=[Param(name, value) for name, value in params.items()],
        )
        regime = trial.arm.regime
        options, fingerprint = canonical_json(regime.options), row["dataset_fingerprint"]
        log_data(self._client, run_id, Dataset(regime.dataset, options, regime.name, fingerprint))
        self._artifacts.write_run(
            run_id, "trial.json", json.dumps(json.loads(row["config"]), indent=1).encode()
        )
        if row["phase"] == "confirm" and (content := self._network(row)) is not None:
            log_model(self._id, run_id, row, params, content, self._artifacts, self._stored(row["key"]))
        self._client.set_terminated(run_id, _RUN_STATUS[row["status"]], milliseconds(row["ended"]))
        self._trials[row["key"]] = run_id

    def _network(self, row: Row) -> bytes | None:
        """Return the network of a confirmation; None if it is missing or, with a warning, if it is damaged."""
        try:
            return read_artifact(self._ledger.store, "network", row)
        except FileNotFoundError:
            return None
        except DamagedError as error:
            _LOG.warning("MLflow gets no network of %s: %s", row["arm"], error)
            return None

    def _stored(self, key: str) -> Path | None:
        own = self._own
        return None if own is None else own / self._name / artifact_name("network", key)

    def write_tables(
        self, files: Mapping[str, str], pictures: Callable[[], Mapping[str, bytes] | None] | None = None
    ) -> None:
        """Write the arms' results, the tables and, if there are any, the report and the plots.

        Tables that the experiment already has are not written again.

        Args:
            files: The text files of the tables, by name.
            pictures: Makes the report and the plots, by file name; it returns None if it cannot.
        """
        version = digest(files)
        if self._tables != version:
            self._write_tables(files, version)
        if pictures is None or self._drawn == version or (drawn := pictures()) is None:
            return
        run_id = self._study_run()
        for name, content in drawn.items():
            self._artifacts.write_run(run_id, name, content)
            self._progressed()
        self._client.set_tag(run_id, _DRAWN, version)
        self._drawn = version

    def _study_run(self) -> str:
        return self._parent("study", f"{self._name} tables", {"topk.study": self._name})

    def _write_tables(self, files: Mapping[str, str], version: str) -> None:
        run_id = self._study_run()
        for name, text in files.items():
            self._artifacts.write_run(run_id, name, text.encode())
            self._progressed()
        for arm_id, arm in results_of_arms(files).items():
            if arm_id in self._parents:
                self._parents[arm_id] = write_arm(self._client, self._parents[arm_id], arm)
                self._progressed()
        if table := files.get("table.md"):
            self._client.set_tag(run_id, NOTE, table)
        self._client.set_tag(run_id, "topk.tables", version)
        self._tables = version


def _metrics(row: Row, final: Mapping[str, float], epochs: Sequence[Row]) -> Iterator[Metric]:
    """Yield the values by epoch, then the results, which MLflow shows and sorts by.

    MLflow takes the last value for a metric's result. If the weights of an earlier epoch were kept, the result is
    another value than that of the last epoch, and follows it.
    """
    drawn: dict[str, Metric] = {}
    for point in curve(milliseconds(row["started"]), epochs):
        for name, value in point.values.items():
            drawn[name] = Metric(name, value, point.milliseconds, point.epoch)
            yield drawn[name]
    ended = milliseconds(row["ended"]) or int(1000 * time.time())
    for name, value in final.items():
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
