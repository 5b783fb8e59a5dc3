"""MLflow as a sink: filled from the ledger by a thread of its own, and caught up after any failure."""

from __future__ import annotations

import json
import logging
import os
import queue
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from topk_platform.errors import reason
from topk_platform.records.artifacts.files import read_artifact
from topk_platform.records.ledger.ledger import Ledger
from topk_platform.records.storage.checked_json import DamagedError
from topk_platform.records.table.rows import Row
from topk_platform.records.table.schema import epoch_rows, trial_row
from topk_platform.records.tracked import DRAWN, is_tracked
from topk_platform.records.tracked_arms import ARMS, NOTE, log_data, tell_arm
from topk_platform.records.tracked_artifacts import Artifacts
from topk_platform.records.tracked_database import disconnect, make_database
from topk_platform.records.tracked_models import Graphs, forget_models, log_graphs, log_model
from topk_platform.records.tracked_values import milliseconds, points
from topk_platform.specs import Trial, TrialRecord, canonical_json, digest

if TYPE_CHECKING:
    from mlflow import MlflowClient

__all__ = ["Extras", "TrackingSink"]

_RUN_STATUS = {"completed": "FINISHED", "pruned": "KILLED", "diverged": "FAILED", "failed": "FAILED"}
_METRICS_A_BATCH = 1000
_PARAMS_A_BATCH = 100
_PARENT = "mlflow.parentRunId"
_PAUSES = (5.0, 15.0, 60.0, 300.0)
_STILL_SECONDS = 60.0
_MLFLOWS = {
    # By default it waits two minutes for an answer, and tries seven times; a study that is done should not.
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "15",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    # Else it prints every run's address, with the server's password where that stands in it.
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
_LOG = logging.getLogger("topk_platform")

_Item = tuple[Row, Sequence[Row]] | Mapping[str, str] | None
"""An ended trial's rows, or the study's tables, or the end."""


@dataclass(frozen=True)
class Extras:
    """What MLflow gets of a study beside its trials and tables; made only where MLflow has not got it yet.

    Args:
        pictures: Makes what is drawn of the tables, the report and plots, by file name.
        graphs: Returns what makes the graph of one confirmed network of each arm, by key.
    """

    pictures: Callable[[], Mapping[str, bytes]]
    graphs: Callable[[], Graphs]


class TrackingSink(threading.Thread):
    """Writes a study's ended trials to MLflow: an experiment, a parent run per arm, a child per trial.

    The experiment has the study's name and, as a tag, the ledger's identity. If two studies on a server have the same
    name, the second experiment's name also has a part of its identity, and neither touches the other's runs. A
    trial's run is found by the trial's key, and is complete when it is no longer running; one cut off by a kill is
    made anew, so nothing appears twice. The study goes on while MLflow is down: a warning says so at once, MLflow is
    tried again with growing pauses, and what it missed is filled in from the ledger, at the latest by the next run or
    by :func:`sync`.

    Args:
        uri: MLflow's tracking URI.
        artifacts: Where the artifacts of the server at ``uri`` lie, if that is this machine's own database; else None.
        ledger: The study's ledger.
        stale: Keys of trials whose runs are made anew, because the ledger no longer has what they show.
        pauses: Seconds before each further try; the last one repeats.

    Attributes:
        error: What keeps MLflow from being written; None while all is well.
    """

    def __init__(
        self,
        uri: str,
        artifacts: Path | None,
        ledger: Ledger,
        stale: Collection[str] = (),
        pauses: Sequence[float] = _PAUSES,
    ) -> None:
        super().__init__(name="mlflow", daemon=True)
        self.uri = uri
        self.ledger = ledger
        self.error: Exception | None = None
        self._stale = set(stale)
        self._folder = artifacts
        self._pauses = pauses
        self._closing = threading.Event()
        self._queue: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self._files: Mapping[str, str] = {}
        self._extras: Extras | None = None
        self._steps = 0  # what MLflow has taken
        self._drawing = False
        self._forget()

    def _forget(self) -> None:
        self._written: set[str] = set()
        self._parents: dict[str, str] = {}
        self._tables = self._drawn = ""

    def put(self, record: TrialRecord) -> None:
        """Hand over an ended trial that is in the ledger; returns at once."""
        self._queue.put((trial_row(record), epoch_rows(record)))

    def put_files(self, files: Mapping[str, str], extras: Extras | None = None) -> None:
        """Hand over the study's tables, by file name, after all trials; returns at once.

        Args:
            files: The tables.
            extras: What goes with them; if making it fails, a warning says so and it is left out.
        """
        self._extras = extras
        self._queue.put(files)

    def close(self, patience: float = _STILL_SECONDS) -> Exception | None:
        """Wait until all is written, or until one more try has failed; return the error, if any.

        Args:
            patience: How many seconds to wait while MLflow takes nothing.
        """
        self._closing.set()
        self._queue.put(None)
        while self.is_alive():
            before = self._steps
            self.join(patience)
            if self.is_alive() and self._steps == before and not self._drawing:
                return self.error or TimeoutError(f"it has taken nothing for {patience:g} s")
        return self.error

    def run(self) -> None:
        """Fill in what MLflow lacks, then write what is handed over until closed; nothing where nothing is new."""
        if self._holds(item := self._queue.get()):
            return
        failures = 0
        while True:
            last = self._closing.is_set()
            try:
                self._open()
                self._fill_in()
                self._stale.clear()
                self.error = None
                self._stream(item)
            except Exception as error:  # noqa: BLE001 - MLflow being down must not stop a study; told here and by close()
                if self.error is None:
                    _LOG.warning("MLflow is behind and is tried again: %s", reason(error))
                self.error = error
                disconnect(self.uri)
            else:
                return
            if last:
                return
            self._closing.wait(self._pauses[min(failures, len(self._pauses) - 1)])
            failures += 1
            item = None if item is None else {}  # what was being written is filled in from the ledger

    def _stream(self, item: _Item) -> None:
        while item is not None:
            if isinstance(item, tuple):
                self._write_trial(*item)
            else:
                self._files = item or self._files
                self._write_files(self._files)
            item = self._queue.get()

    def _holds(self, item: _Item) -> bool:
        if self._stale or not isinstance(item, Mapping):
            return False
        drawn = self._extras is not None
        return is_tracked(self.uri, self.ledger.identity, self.ledger.keys(), digest(item), drawn=drawn)

    def _open(self) -> None:
        for name, value in _MLFLOWS.items():
            os.environ.setdefault(name, value)
        from mlflow import MlflowClient  # noqa: PLC0415 - seconds of import, here off the hot path

        # Which tell of every table that they create, and of an error that is told in a line by many.
        for name in ("alembic", "mlflow"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self._forget()
        make_database(self.uri)
        self._client: MlflowClient = MlflowClient(tracking_uri=self.uri)
        place = None if self._folder is None else self._folder / self.ledger.identity
        self._artifacts = Artifacts(self._client, place)
        self._experiment: str = self._find_experiment()
        for run in self._runs():
            self._note(run)

    def _find_experiment(self) -> str:
        study, identity = self.ledger.study, self.ledger.identity
        for name in (study, f"{study} ({identity[:8]})"):
            experiment = self._client.get_experiment_by_name(name)
            if experiment is None:
                return self._new_experiment(name, identity)
            if experiment.tags.get("topk.ledger") == identity:
                return str(experiment.experiment_id)
        raise RuntimeError(f"experiment {name!r} is another ledger's")

    def _new_experiment(self, name: str, identity: str) -> str:
        # By the kind the UI opens on metrics, not on traces.
        tags = {"mlflow.experimentKind": "custom_model_development", "topk.ledger": identity}
        place = None if self._folder is None else f"mlflow-artifacts:/{identity}"
        return str(self._client.create_experiment(name, place, tags=tags))

    def _runs(self) -> Iterable[Any]:
        token: str | None = None
        while token is None or token:
            page = self._client.search_runs([self._experiment], max_results=1000, page_token=token)
            self._steps += 1
            yield from page
            token = page.token or ""

    def _note(self, run: Any) -> None:
        tags = run.data.tags
        if "topk.parent" in tags:
            self._parents[tags["topk.parent"]] = run.info.run_id
            self._tables = tags.get("topk.tables", self._tables)
            self._drawn = tags.get(DRAWN, self._drawn)
        elif "topk.key" in tags and (run.info.status == "RUNNING" or tags["topk.key"] in self._stale):
            forget_models(self._client, run)
            self._client.delete_run(run.info.run_id)
        elif "topk.key" in tags:
            self._written.add(tags["topk.key"])

    def _fill_in(self) -> None:
        if self._written.issuperset(self.ledger.keys()):
            return
        missing = [row for row in self.ledger.rows() if row["key"] not in self._written]
        epochs: dict[str, list[Row]] = {row["key"]: [] for row in missing}
        for row in self.ledger.read("epochs").to_pylist():
            if row["key"] in epochs:
                epochs[row["key"]].append(row)
        for row in missing:
            self._write_trial(row, epochs[row["key"]])

    def _parent(self, key: str, name: str, tags: Mapping[str, str]) -> str:
        if key not in self._parents:
            run = self._client.create_run(self._experiment, run_name=name, tags={**tags, "topk.parent": key})
            self._client.set_terminated(run.info.run_id)
            self._parents[key] = run.info.run_id
        return self._parents[key]

    def _write_trial(self, row: Row, epochs: Sequence[Row]) -> None:
        if row["key"] in self._written:
            return
        names = {name: str(row[name]) for name in ("arm", "regime", "model", "loss")}
        parent = self._parent(row["arm_id"], row["arm"], names)
        tags = {
            f"topk.{name}": str(row[name])
            for name in ("key", "phase", "number", "seed", "status", "code_version")
        }
        run = self._client.create_run(
            self._experiment,
            start_time=milliseconds(row["started"]),
            run_name=f"{row['arm']} {row['phase']} {row['number']}.{row['seed']}",
            tags={**names, **tags, "topk.reason": row["reason"], _PARENT: parent},
        )
        self._write_values(run.info.run_id, row, epochs)
        self._write_data(run.info.run_id, row)
        self._write_artifacts(run.info.run_id, row)
        self._client.set_terminated(run.info.run_id, _RUN_STATUS[row["status"]], milliseconds(row["ended"]))
        self._written.add(row["key"])
        self._steps += 1

    def _write_values(self, run_id: str, row: Row, epochs: Sequence[Row]) -> None:
        from mlflow.entities import Metric, Param  # noqa: PLC0415 - as above

        metrics = [Metric(*point) for point in points(milliseconds(row["started"]), epochs)]
        ended = milliseconds(row["ended"])
        last = ("train_seconds", *(name for name in row if name.startswith("test.")))
        metrics += [Metric(name, row[name], ended, 0) for name in last if row[name] is not None]
        values = json.loads(row["values"])
        params = [Param(name, str(value)) for name, value in values.items() if value is not None]
        for start in range(0, max(len(metrics), len(params), 1), _METRICS_A_BATCH):
            batch = params[:_PARAMS_A_BATCH] if start == 0 else ()
            self._client.log_batch(run_id, metrics=metrics[start : start + _METRICS_A_BATCH], params=batch)
            self._steps += 1

    def _write_data(self, run_id: str, row: Row) -> None:
        regime = Trial.from_json(row["config"]).arm.regime
        told = {"name": regime.dataset, "options": canonical_json(regime.options), "regime": regime.name}
        log_data(self._client, run_id, {**told, "fingerprint": row["dataset_fingerprint"]})

    def _write_artifacts(self, run_id: str, row: Row) -> None:
        config = json.dumps(json.loads(row["config"]), indent=1)
        self._artifacts.write_run(run_id, "trial.json", config.encode())
        if row["phase"] == "confirm":
            self._write_network(run_id, row)

    def _write_network(self, run_id: str, row: Row) -> None:
        """Log a confirmation's network, if it is there and sound."""
        try:
            content = read_artifact(self.ledger.store, "network", row)
        except FileNotFoundError:
            return
        except DamagedError as error:
            _LOG.warning("MLflow gets no network of %s: %s", row["arm"], error)
            return
        log_model(self._experiment, run_id, row, content, self._artifacts)

    def _write_files(self, files: Mapping[str, str]) -> None:
        if not files:
            return
        tables = digest(files)
        if self._tables != tables:
            self._write_tables(files, tables)
        if self._extras is not None and self._drawn != tables:
            self._write_extras(self._extras, tables)

    def _study_run(self) -> str:
        return self._parent("study", f"{self.ledger.study} tables", {"topk.study": self.ledger.study})

    def _write_tables(self, files: Mapping[str, str], tables: str) -> None:
        run_id = self._study_run()
        for name, text in files.items():
            self._artifacts.write_run(run_id, name, text.encode())
            self._steps += 1
        for arm_id, told in json.loads(files.get(ARMS, "{}")).items():
            if arm_id in self._parents:
                self._parents[arm_id] = tell_arm(self._client, self._parents[arm_id], told)
                self._steps += 1
        if table := files.get("table.md"):
            self._client.set_tag(run_id, NOTE, table)
        self._client.set_tag(run_id, "topk.tables", tables)
        self._tables = tables

    def _write_extras(self, extras: Extras, tables: str) -> None:
        self._drawing = True
        try:
            made, graphs = extras.pictures(), extras.graphs()
        except Exception as error:  # noqa: BLE001 - of drawing, which must not stop a study, and no fault of MLflow's
            _LOG.warning("MLflow gets no report and no plots: %s", reason(error))
            return
        finally:
            self._drawing = False
        run_id = self._study_run()
        for name, content in made.items():
            self._artifacts.write_run(run_id, name, content)
            self._steps += 1
        rows = {row["key"]: row for row in self.ledger.rows() if row["key"] in graphs}
        log_graphs(self._experiment, graphs, rows, self._artifacts)
        self._client.set_tag(run_id, DRAWN, tables)
        self._drawn = tables
