"""Machines that compute other last bits: refused, passed over, or told of where the user lets them differ."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from in_process import topk
from ray.exceptions import GetTimeoutError, NodeDiedError, WorkerCrashedError
from small_trials import completed

from topk_platform import Float, Loss, Model, Recipe, Regime, Study, grid, run, table
from topk_platform.cli.status import status
from topk_platform.errors import ClusterError, StoreError, UserError
from topk_platform.identity import Identity
from topk_platform.protocol import StudyProgress
from topk_platform.records.history import progress_of, read_history
from topk_platform.records.ledger import Ledger
from topk_platform.records.storage.store import Store
from topk_platform.reports.result_tables import to_markdown
from topk_platform.running.cluster import nodes as machines
from topk_platform.running.cluster.node_facts import Answer, Finding, Question, examine
from topk_platform.running.cluster.reaching import Patience
from topk_platform.running.counted import in_environment
from topk_platform.running.preflight.arm_checks import check_study
from topk_platform.specs import Trial
from topk_platform.testing import fake_run
from topk_platform.training import environment, finish, run_trials

ELSEWHERE = {"torch": "1.0", "machine": "a mainframe", "losses": "torch", "optuna": "5.0.0"}


def a_study() -> Study:
    losses = [
        Loss("cross_entropy"),
        Loss("smooth_topk_svm", {"tau": Float(0.1, 1.0)}, {"tau": 0.5}),
    ]
    arms = grid([Regime("r", "digits")], [Model("linear")], losses, k=3, recipe=Recipe(epochs=1))
    return Study("s", arms, topk=(1, 3), trials=1, seeds=1)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with the whole study, trained elsewhere."""
    machine = {name: ELSEWHERE[name] for name in ("torch", "machine", "losses")}
    counted = in_environment(a_study(), check_study(a_study()), machine)
    fake_run(
        a_study(), tmp_path, lambda trial: completed(trial).replace_versions(**ELSEWHERE), identities=counted
    )
    return tmp_path


def progress_here(store: Path) -> StudyProgress:
    """The study's state on this machine."""
    ledger = Ledger.open(Store.open(store), "s")
    counted = in_environment(a_study(), check_study(a_study()), environment("cpu"))
    return progress_of(a_study(), counted, read_history(ledger, a_study(), counted))


@pytest.fixture
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "on_cluster", Mock(side_effect=AssertionError("Ray would have started")))


@pytest.mark.usefixtures("no_ray")
def test_machines_may_differ_where_the_user_allows_it_and_the_table_says_so(store: Path) -> None:
    ledger = Ledger.open(Store.open(store), "s")
    (record,) = finish(run_trials(progress_here(store).next_trials()))
    (same,) = [
        row
        for row in ledger.rows()
        if (row["arm_id"], row["phase"]) == (record.trial.arm_id, record.trial.phase)
    ]
    with ledger.writing(a_study()) as writer:
        writer.table.delete([same["key"]])
        writer.put(record)
    assert run(a_study(), store=store, mixed=True, mlflow="none").ran == 0
    text = to_markdown(table(a_study(), store=store))
    assert "2 of machine a mainframe" in text and f"1 of machine {environment('cpu')['machine']}" in text


def test_readers_go_by_the_machine_of_the_last_run(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A table is read on a laptop, of what a cluster has trained."""
    assert "1 seed;" in to_markdown(table(a_study(), store=store))
    status(store=str(store))
    assert "do not count" not in capsys.readouterr().out
    ledger = Ledger.open(Store.open(store), "s")
    with ledger.writing(a_study()):
        ledger.identify(in_environment(a_study(), check_study(a_study()), environment("cpu")))
    why = "3 of torch 1.0 in place of"
    assert why in to_markdown(table(a_study(), store=store))
    status(store=str(store))
    assert why in " ".join(capsys.readouterr().out.split())


def test_a_search_goes_on_from_what_another_version_chose_and_the_table_says_so(tmp_path: Path) -> None:
    """Two trials by one version of Optuna, two by another: the same history, whoever suggested it."""
    study = replace(a_study(), trials=4, baseline="cross_entropy")
    here = in_environment(study, check_study(study), environment("cpu"))
    arm_id = next(i for i, result in here.items() if "optuna" in result.environment)

    def chosen(store: Path, version: str, stop_after: int | None = None) -> dict[int, Any]:
        """Return the values of the search's trials after a run with a version of Optuna, by number."""
        counted = {i: _with_optuna(result, version) for i, result in here.items()}
        ledger = fake_run(study, store, completed, identities=counted, stop_after=stop_after)
        rows = ledger.rows(f"phase = 'search' AND arm_id = '{arm_id}'")
        return {row["number"]: Trial.from_json(row["config"]).values for row in rows}

    assert sorted(chosen(tmp_path, "4.9.0", stop_after=2)) == [0, 1]
    both = chosen(tmp_path, "5.1.0")
    assert sorted(both) == [0, 1, 2, 3]
    assert both == chosen(tmp_path / "alone", here[arm_id].environment["optuna"])
    result = table(study, store=tmp_path)
    assert result.environments.keys() == {"optuna 4.9.0", "optuna 5.1.0"} and result.left == 0
    assert "of optuna 4.9.0" in to_markdown(result)


def _with_optuna(identity: Identity, version: str) -> Identity:
    environment = identity.environment
    return replace(identity, environment={n: version if n == "optuna" else v for n, v in environment.items()})


# Nodes, by what they may answer


class Nodes:
    """Ray in the place of nodes, and its clock; None: one is silent.

    Args:
        answers: What each node answers: an environment, what is wrong, or Ray's error.
        late: How many seconds the first answer takes; the others take none.
    """

    def __init__(self, *answers: Any, late: int = 0) -> None:
        self.answers, self.late, self.now = answers, late, 0.0
        self.asked, self.options = list[Question](), list[dict[str, Any]]()
        self.cancelled, self.messages = list[str](), list[str]()

    def nodes(self, needs: dict[str, float]) -> list[dict[str, Any]]:
        assert needs["CPU"] == 1
        names = range(len(self.answers))
        return [
            {"NodeManagerAddress": f"10.0.0.{n}", "NodeID": f"node-{n}", "Resources": {"GPU": n}}
            for n in names
        ]

    def remote(self, **options: Any) -> Any:
        self.options.append(options)
        return lambda _function: SimpleNamespace(remote=self._ask)

    def _ask(self, question: Question) -> str:
        self.asked.append(question)
        return question.node

    def get(self, name: str, timeout: float) -> Answer:
        """Return a node's answer, which comes by a certain time; wait for it no longer than the timeout."""
        answer, comes = self.answers[int(name[7])], self.late if name[7] == "0" else 0
        if answer is None or comes > self.now + timeout:
            self.now += timeout
            raise GetTimeoutError("Get timed out")
        self.now = max(self.now, comes)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, str):
            return Answer(name, [Finding.of(answer, name, "this")], [environment("cpu")])
        return Answer(name, [], [answer])

    def cancel(self, name: str) -> None:
        self.cancelled.append(name)


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Check a study on made-up nodes; return the nodes, and the error or the environment."""

    def checked(
        *answers: Any, wait: float | None = None, mixed: bool = False, **study: Any
    ) -> tuple[Nodes, Any]:
        nodes = Nodes(*answers, late=study.pop("late", 0))
        patience = Patience(wait, nodes.messages.append)
        monkeypatch.setattr(machines, "time", SimpleNamespace(monotonic=lambda: nodes.now))
        for name in ("remote", "get", "cancel"):
            monkeypatch.setattr(machines.ray, name, getattr(nodes, name))
        monkeypatch.setattr(machines, "_nodes_for", nodes.nodes)
        monkeypatch.setattr(machines, "NodeAffinitySchedulingStrategy", lambda node, soft: (node, soft))
        try:
            asked = replace(a_study(), **study), Store.open(tmp_path)
            return nodes, machines.check_nodes(*asked, patience, mixed=mixed)
        except ClusterError as error:
            return nodes, str(error)

    return checked


HERE = environment("cpu")
OTHER = {**HERE, "torch": "1.0"}
GONE = NodeDiedError("taken away")
TRIED = "; trials check it if it is back"


@pytest.mark.parametrize(
    ("answers", "wrong"),
    [
        ([HERE, OTHER, HERE], ["same bits, 10.0.0.1 (node-1): torch 1.0, not "]),
        ([HERE, OTHER], ["same bits, 10.0.0.1 (node-1): torch 1.0, not "]),
        (
            ["data", "data", "code"],
            ["data, 10.0.0.0 (node-0), 10.0.0.1 (node-1): this (", "code, 10.0.0.2 "],
        ),
        ([HERE, WorkerCrashedError()], ["node, 10.0.0.1 (node-1): The worker died"]),
        ([GONE, "store"], ["store, 10.0.0.1 (node-1): this"]),
        (["data"] * 9, ["10.0.0.3 (node-3) and 5 more: this"]),
    ],
)
def test_all_that_is_wrong_is_in_the_error(ask: Any, answers: list[Any], wrong: list[str]) -> None:
    _, error = ask(*answers)
    assert all(text in error for text in wrong) and error.count("; ") == len(wrong) - 1


def test_nodes_that_differ_are_taken_where_the_user_allows_it_and_nothing_else_is(ask: Any) -> None:
    assert ask(HERE, OTHER, mixed=True)[1] in (HERE, OTHER)
    assert "data, 10.0.0.1" in ask(HERE, "data", mixed=True)[1]


def test_a_node_that_is_lost_stops_nothing_and_is_named(ask: Any) -> None:
    nodes, result = ask(HERE, GONE)
    assert result == HERE
    assert nodes.messages[1:] == [f"Note: node 10.0.0.1 (node-1) was lost before it answered{TRIED}"]


def test_an_answer_takes_neither_a_core_nor_a_gpu(ask: Any) -> None:
    """Those of a cluster may all be taken, for days."""
    nodes, _ = ask(HERE, HERE, device="cuda", gpus=0.5, accelerator="L4")
    assert [one["num_cpus"] for one in nodes.options] == [0, 0] and not any(
        "num_gpus" in o for o in nodes.options
    )
    assert [one["scheduling_strategy"] for one in nodes.options] == [("node-0", False), ("node-1", False)]
    assert [(one.device, one.gpus) for one in nodes.asked] == [("cuda", 0), ("cuda", 1)]


@pytest.mark.parametrize(
    ("answers", "late", "wait", "seconds", "silent"),
    [
        ([HERE, HERE], 0, None, 0, []),
        ([HERE, HERE], 60, None, 60, []),
        ([HERE, None], 0, None, 300, [1]),
        ([HERE, None], 200, 400.0, 400, [1]),
        ([None, HERE], 0, None, 300, [0]),
    ],
)
def test_answers_are_waited_for(
    ask: Any, answers: list[Any], late: int, wait: float | None, seconds: int, silent: list[int]
) -> None:
    nodes, result = ask(*answers, late=late, wait=wait)
    assert (result, nodes.now) == (HERE, seconds)
    assert nodes.cancelled == [f"10.0.0.{n} (node-{n})" for n in silent]
    assert nodes.messages[0] == "waiting for 10.0.0.0 (node-0), 10.0.0.1 (node-1) to answer"
    late_ones = [f"Note: node 10.0.0.{n} (node-{n}) did not answer within {seconds} s{TRIED}" for n in silent]
    assert nodes.messages[1:] == late_ones


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ([], "no node is left"),
        ([GONE], "node 10.0.0.0 (node-0) was lost"),
    ],
)
def test_a_node_is_waited_for_where_none_is_left(ask: Any, answers: list[Any], why: str) -> None:
    _, error = ask(*answers, wait=0)
    assert error.startswith(why)


def test_nodes_that_are_all_silent_are_not_asked_again(ask: Any) -> None:
    nodes, error = ask(None, None, wait=5.0)
    silent = ["10.0.0.0 (node-0)", "10.0.0.1 (node-1)"]
    assert error == ", ".join(f"node {name} did not answer within 300 s" for name in silent)
    assert nodes.cancelled == silent


# The store


def test_what_nodes_look_for_in_a_store_is_there_meanwhile_and_nothing_is_left(
    tmp_path: Path, bucket: str
) -> None:
    for store in (Store.open(tmp_path / "not" / "yet"), Store.open(bucket)):
        with machines._marked(store) as name:
            assert name.startswith(".") and store.existing.exists(name)
        assert store.existing.files() == []


# The command, with this machine in the place of a cluster


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> list[Answer]:
    """The answers of further nodes."""
    others: list[Answer] = []
    monkeypatch.setattr(machines, "connected", lambda *_: nullcontext())
    here = SimpleNamespace(gcs_address="127.0.0.1:6379")
    monkeypatch.setattr(machines.ray, "get_runtime_context", lambda: here)
    asked = lambda question, *_, **__: [examine(replace(question, node="here")), *others]  # noqa: E731
    monkeypatch.setattr(machines, "ask_nodes", asked)
    return others


@pytest.mark.usefixtures("cluster")
def test_a_server_that_is_down_and_a_store_that_cannot_be_written_are_findings(tmp_path: Path) -> None:
    mlflow = "http://me:s3cr3t@127.0.0.1:9"
    result = machines.check_cluster(a_study(), "auto", "/proc/runs", mlflow, tmp_path, Patience(0))
    wrong = {finding.check: finding.finding for finding in result}
    assert set(wrong) == {"store", "tracking"} and "cannot be written" in wrong["store"]
    assert "http://me:***@127.0.0.1:9" in wrong["tracking"] and "s3cr3t" not in wrong["tracking"]


def test_a_cluster_that_does_not_answer_is_a_finding(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        nobody = f"127.0.0.1:{free.getsockname()[1]}"
    (result,) = machines.check_cluster(a_study(), nobody, tmp_path / "runs", None, tmp_path, Patience(0))
    assert result.check == "cluster" and "no Ray cluster answers" in result.finding


@pytest.mark.parametrize(
    ("host", "mode", "noted"),
    [("10.0.0.1", "", True), ("10.0.0.1", "token", False), ("127.0.0.1", "", False)],
)
@pytest.mark.usefixtures("cluster")
def test_a_cluster_that_others_reach_and_that_has_no_token_is_noted(
    host: str, mode: str, noted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, messages = SimpleNamespace(gcs_address=f"{host}:6379"), list[str]()
    monkeypatch.setattr(machines.ray, "get_runtime_context", lambda: here)
    monkeypatch.setenv("RAY_AUTH_MODE", mode)
    patience = Patience(0, messages.append)
    assert machines.check_cluster(a_study(), "auto", tmp_path, None, tmp_path, patience) == []
    assert [line.startswith("Note: anyone who reaches 10.0.0.1:6379") for line in messages] == [True] * noted


@pytest.mark.usefixtures("cluster")
def test_a_store_that_fails_meanwhile_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    delete = Store.delete

    def fail(store: Store, *names: str) -> None:
        if names[0].startswith(".seen-"):
            raise StoreError("the store cannot be written: it is read-only now")
        delete(store, *names)

    monkeypatch.setattr(Store, "delete", fail)
    result = machines.check_cluster(a_study(), "auto", tmp_path / "runs", None, tmp_path, Patience(0))
    assert [finding.check for finding in result] == ["store"]


def test_the_command_prints_the_plan_and_what_is_wrong_and_has_an_exit_code(
    cluster: list[Answer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = topk("plan", "digits", "--address", "auto")
    assert code == 0 and "trials left" in out and "Nothing is wrong" in out
    assert not list(tmp_path.iterdir())
    code, out, _ = topk("plan", "digits", "--address", "auto", "--store", "/proc/x", "--json")
    (finding,) = json.loads(out)["findings"]
    assert code == 1 and finding["check"] == "store" and finding["remedy"]

    refuse = Mock(side_effect=UserError("arm a: its loss has no gradient"))
    monkeypatch.setattr("topk_platform.cli.planning.plan_study", refuse)
    code, out, _ = topk("plan", "digits", "--address", "auto", "--store", "/proc/x")
    assert code == 1 and "2 things are wrong with the cluster" in out
    assert "its loss has no gradient" in out and "/proc/x" in out


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--address", "nowhere"), "--address"),
        (("--address", "auto", "--store", " "), "--store"),
        (("--address", "auto", "--data", ""), "--data"),
        (("--mlflow", "http://127.0.0.1:9"), "--mlflow"),
    ],
)
def test_what_was_typed_wrong_is_no_finding(arguments: Sequence[str], named: str) -> None:
    code, _, err = topk("plan", "digits", *arguments)
    assert code == 2 and named in err
