"""A study's experiment in MLflow: the runs of its arms, of its trials and of its tables."""

from __future__ import annotations

import json
import logging
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mlflow import MlflowClient, entities
from mlflow.version import VERSION

from topk_platform.own_measures import recorded_values
from topk_platform.records.files import artifact_name, read_artifact
from topk_platform.records.ledger import Ledger
from topk_platform.records.rows import Row
from topk_platform.records.storage.checked_json import DamagedError
from topk_platform.specs import Trial, digest
from topk_platform.tracking.feed import SQLITE, Pictures, tracking_uri
from topk_platform.tracking.trials import LEDGER, VIEW, arms_of, parameters, values, view

__all__ = ["Experiment", "make_database"]

_RUN_STATUS = {"completed": "FINISHED", "pruned": "KILLED", "diverged": "FAILED", "failed": "FAILED"}
_TAGS = ("key", "phase", "number", "seed", "status", "code_version", "reason")
_NOTE = "mlflow.note.content"
_PARENT = "mlflow.parentRunId"
_WEIGHTS = "model.safetensors"
_REFUSED = re.compile(r"[/:.%\"']")  # in a model's name
_LOG = logging.getLogger("topk_platform")


class Experiment:
    """The experiment of a study in MLflow, opened or created: a parent run per arm, a child run per trial.

    The experiment has the study's name and, as a tag, the ledger's identity, by which later runs find it. If the name
    is taken, as by somebody else's study or an experiment that was deleted, a number follows it. The tag ``topk.key``
    identifies a trial's run, which is complete when its status is no longer running. A run that was cut off by a kill
    is deleted when the experiment is opened, and so are a run that is there twice and the run of a trial that the
    ledger no longer has.

    Args:
        ledger: The study's ledger.
        uri: MLflow's tracking URI.
        store: The store's folder if it is on this machine; the files of the database in it are kept beside it.
    """

    def __init__(self, ledger: Ledger, uri: str, store: Path | None) -> None:
        make_database(uri)
        self._ledger = ledger
        self._client = MlflowClient(tracking_uri=uri)
        self._store = store if store is not None and uri == tracking_uri(store) else None
        self._id = self._opened()
        self._known: dict[str, entities.RunInfo] = {}  # the runs of trials by key, those of arms by identity
        self._shown: Mapping[str, str] = {}  # the versions of the tables and of the report that MLflow has
        listed = list(self._runs())
        keys = set(ledger.keys())  # read only now: another process may write meanwhile
        # Deleted only now, because a deletion moves the pages of runs that follow.
        for run in [run for run in listed if self._is_left(run, keys)]:
            self._delete(run, self._known.get(run.data.tags.get("topk.parent")))

    def _opened(self) -> str:
        """Return the id of the ledger's experiment, which may have been renamed; make one if there is none."""
        identity, study = self._ledger.identity, self._ledger.study
        where = f"tags.`{LEDGER}` = '{identity}'"
        for known in self._client.search_experiments(filter_string=where, order_by=["creation_time ASC"]):
            return str(known.experiment_id)
        names = (study if number == 1 else f"{study} ({number})" for number in count(1))
        name = next(name for name in names if self._client.get_experiment_by_name(name) is None)
        # With this kind, MLflow's page of the experiment shows metrics first, not traces.
        tags = {"mlflow.experimentKind": "custom_model_development", LEDGER: identity, VIEW: "{}"}
        # The location is not absolute, so that a store can be moved; `topk ui` serves the folder.
        location = None if self._store is None else f"mlflow-artifacts:/{identity}"
        return str(self._client.create_experiment(name, location, tags=tags))

    def _runs(self, where: str = "") -> Iterator[entities.Run]:
        token: str | None = None
        while token is None or token:
            page = self._client.search_runs([self._id], where, max_results=1000, page_token=token)
            yield from page
            token = page.token or ""

    def _is_left(self, run: entities.Run, keys: Collection[str]) -> bool:
        """Note a run; return whether it must go: the ledger lacks it, a kill cut it off, or it is there twice."""
        arm = run.data.tags.get("topk.parent")
        key = arm or run.data.tags.get("topk.key")
        if key is None:  # somebody's own run
            return False
        if arm == "study" and arm not in self._known:
            self._shown = run.data.tags
        gone = run.info.status == "RUNNING" or (arm is None and key not in keys)
        return gone or self._known.setdefault(key, run.info) is not run.info

    def _delete(self, run: entities.Run, successor: entities.RunInfo | None = None) -> None:
        """Delete a run and its models; if it is an arm's, its trials go to the successor."""
        if successor is not None:
            for child in list(self._runs(f"tags.`{_PARENT}` = '{run.info.run_id}'")):
                self._client.set_tag(child.info.run_id, _PARENT, successor.run_id)
        for output in run.outputs.model_outputs if run.outputs is not None else ():
            self._client.delete_logged_model(output.model_id)
        self._client.delete_run(run.info.run_id)

    def has(self, row: Row) -> bool:
        """Return whether MLflow has a trial; one that was trained again has the same key and another start."""
        known = self._known.get(row["key"])
        return known is not None and known.start_time // 1000 == int(row["started"].timestamp())

    def write_trial(self, row: Row, epochs: Sequence[Row]) -> None:
        """Write an ended trial's run, as a child of its arm's run, unless it is there; replace an earlier training's.

        Args:
            row: The trial's row.
            epochs: The rows of its epochs.
        """
        if self.has(row):
            return
        if earlier := self._known.pop(row["key"], None):
            self._delete(self._client.get_run(earlier.run_id))
        trial = Trial.from_json(row["config"])
        chosen = parameters(trial)
        number = f"search {row['number']}" if row["phase"] == "search" else f"seed {row['seed']}"
        tags = {"arm": row["arm"], _PARENT: self._parent(row["arm_id"], row["arm"])}
        tags |= {f"topk.{name}": str(row[name]) for name in _TAGS}
        tags["topk.group"] = f"{row['arm']} {row['phase']} {row['number']}"
        tags |= {f"own.{name}": str(value) for name, value in recorded_values(row.get("own")).items()}
        started, ended = (int(1000 * row[name].timestamp()) for name in ("started", "ended"))
        run = self._client.create_run(self._id, started, tags, f"{row['arm']} {number}").info
        metrics = [entities.Metric(*value) for value in values(row, trial.arm.metric, epochs)]
        # MLflow's client splits what is more than a server takes at once.
        self._client.log_batch(run.run_id, metrics, [entities.Param(*pair) for pair in chosen.items()])
        self._keep(run.run_id, {"trial.json": json.dumps(json.loads(row["config"]), indent=1).encode()})
        if row["phase"] == "confirm":
            self._log_network(run, row, chosen)
        self._client.set_terminated(run.run_id, _RUN_STATUS[row["status"]], ended)
        self._known[row["key"]] = run

    def _parent(self, key: str, name: str) -> str:
        if key not in self._known:
            run = self._client.create_run(self._id, run_name=name, tags={"arm": name, "topk.parent": key})
            self._client.set_terminated(run.info.run_id)
            self._known[key] = run.info
        return str(self._known[key].run_id)

    def _log_network(self, run: entities.RunInfo, row: Row, settings: dict[str, str]) -> None:
        """Log a confirmation's network, if it is kept, as a model that ``mlflow.pyfunc.load_model`` loads.

        The model's folder has the safetensors file as it is in the store, and the file ``MLmodel`` that MLflow needs;
        nothing is pickled.
        """
        try:
            content = read_artifact(self._ledger.store, "network", row)
        except FileNotFoundError:
            return
        except DamagedError as error:
            _LOG.warning("MLflow gets no network of %s: %s", row["arm"], error)
            return
        name, tags = _REFUSED.sub("-", run.run_name), {"topk.key": row["key"], "arm": row["arm"]}
        model = self._client.create_logged_model(self._id, name, run.run_id, tags, settings).model_id
        self._client.log_outputs(run.run_id, [entities.LoggedModelOutput(model, 0)])
        loader = {"loader_module": "topk_platform.serving.flavor", "data": _WEIGHTS, "env": {}}
        described = {"flavors": {"python_function": loader}, "run_id": run.run_id, "model_id": model}
        text = json.dumps({**described, "mlflow_version": VERSION}, indent=1)  # JSON is YAML too
        own = self._store and self._store / self._ledger.study / artifact_name("network", row["key"])
        files = {"MLmodel": text.encode(), _WEIGHTS: own or content}
        self._write(f"models/{model}", files, partial(self._client.log_model_artifacts, model))
        self._client.finalize_logged_model(model, "READY")

    def _keep(self, run_id: str, files: Mapping[str, bytes]) -> None:
        self._write(run_id, files, partial(self._client.log_artifacts, run_id))

    def _write(self, owner: str, files: Mapping[str, bytes | Path], send: Callable[[str], None]) -> None:
        """Write the files of a run or a model to their folder in the store, or to one that is sent to the server."""
        own = self._store and self._store / "mlflow-artifacts" / self._ledger.identity / owner / "artifacts"
        with TemporaryDirectory() if own is None else nullcontext(own) as folder:
            for name, content in files.items():
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                if isinstance(content, bytes):
                    path.write_bytes(content)
                else:
                    _link(content, path)
            if own is None:
                send(str(folder))

    def write_tables(self, files: Mapping[str, str], pictures: Pictures | None = None) -> None:
        """Write the arms' results, the tables and, if there are any, the report and the plots, unless they are there.

        Args:
            files: The text files of the tables, by name.
            pictures: Makes the report and the plots, by file name; None leaves those that are there.
        """
        version, study = digest(files), self._ledger.study
        run_id = self._parent("study", f"{study} tables")
        if self._shown.get("topk.tables") != version:
            self._keep(run_id, {name: text.encode() for name, text in files.items()})
            arms = {arm_id: arm for arm_id, arm in arms_of(files).items() if arm_id in self._known}
            for arm_id, arm in arms.items():
                self._write_arm(arm_id, arm)
            page = f"[Table, report and plots](#/experiments/{self._id}/runs/{run_id}/artifacts)"
            self._client.set_experiment_tag(self._id, _NOTE, page)
            if arms:
                self._client.set_experiment_tag(self._id, VIEW, json.dumps(view(arms)))
            state = {_NOTE: files.get("table.md", ""), "topk.tables": version}
            self._client.log_batch(run_id, tags=[entities.RunTag(*pair) for pair in state.items()])
        if pictures and self._shown.get("topk.drawn") != version:
            self._keep(run_id, pictures())
            self._client.set_tag(run_id, "topk.drawn", version)

    def _write_arm(self, arm_id: str, arm: Mapping[str, Any]) -> None:
        """Write an arm's results to its run, or to a new run with its trials if another configuration was chosen."""
        run, now = self._client.get_run(self._known[arm_id].run_id), int(time.time() * 1000)
        if run.data.params and run.data.params != arm["parameters"]:  # which MLflow cannot change
            del self._known[arm_id]
            self._parent(arm_id, run.info.run_name)
            self._delete(run, self._known[arm_id])
        metrics = [entities.Metric(*pair, now, 0) for pair in arm["metrics"].items()]
        settings = [entities.Param(*pair) for pair in arm["parameters"].items()]
        tags = [entities.RunTag(_NOTE, arm["note"])]
        self._client.log_batch(self._known[arm_id].run_id, metrics, settings, tags)


def _link(stored: Path, path: Path) -> None:
    """Link a file, so that it is kept once, or copy it if this file system cannot link."""
    try:
        path.hardlink_to(stored)
    except OSError:
        shutil.copyfile(stored, path)


def make_database(uri: str) -> None:
    """Create a sqlite database in one step, because MLflow cannot use one that a kill left incomplete."""
    name, mark, options = uri.removeprefix(SQLITE).partition("?")
    path = Path(name)
    if not uri.startswith(SQLITE) or path.exists():
        return
    with TemporaryDirectory(prefix=".mlflow-", dir=path.parent) as folder:
        made = Path(folder, path.name)
        MlflowClient(tracking_uri=f"{SQLITE}{made}{mark}{options}")
        try:
            # Unlike a rename, this never replaces what another process has made meanwhile.
            path.hardlink_to(made)
        except OSError:  # another process has made it, or this file system cannot link
            if not path.exists():
                made.rename(path)
