"""Machines that compute other last bits: refused, passed over, or told of where the user lets them differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import NodeDiedError, TaskUnschedulableError, WorkerCrashedError
from trained import train

from topk_platform import Float, Loss, Model, Recipe, Regime, Study, grid, run, table
from topk_platform.cli.commands.status import status
from topk_platform.errors import ClusterError, StoreError
from topk_platform.identity import Identity
from topk_platform.protocol import Board
from topk_platform.records import Ledger, Store, StoreKeeper, read_history
from topk_platform.reports import to_markdown
from topk_platform.running.cluster import machines
from topk_platform.running.cluster.patience import NotYetError, Patience
from topk_platform.running.driver import execution
from topk_platform.running.driver.assignments import Orders
from topk_platform.running.driver.boards import in_environment, make_board
from topk_platform.running.driver.conductor import Conductor
from topk_platform.running.preflight.changes import outdated
from topk_platform.running.preflight.checks import check_study
from topk_platform.specs import Trial, TrialRecord
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
        a_study(), tmp_path, lambda trial: train(trial).replace_versions(**ELSEWHERE), identities=counted
    )
    return tmp_path


def board_here(store: Path) -> Board:
    """The study's state on this machine."""
    ledger = Ledger.open(Store.open(store), "s")
    counted = in_environment(a_study(), check_study(a_study()), environment("cpu"))
    return make_board(a_study(), counted, read_history(ledger, a_study(), counted))


class StartedError(Exception):
    """Ray would have started."""


@pytest.fixture
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def refuse(*_: object) -> Iterator[None]:
        raise StartedError
        yield

    monkeypatch.setattr(execution, "on_cluster", refuse)


@pytest.mark.usefixtures("no_ray")
def test_another_machine_starts_anew_and_says_why(store: Path) -> None:
    with pytest.raises(StartedError):
        run(a_study(), store=store)
    board = board_here(store)
    assert board.left == board.total == 3
    counted = in_environment(a_study(), check_study(a_study()), environment("cpu"))
    (why,) = outdated(a_study(), Ledger.open(Store.open(store), "s"), counted, board.arms)
    assert "torch 1.0 in place of " in str(why)


@pytest.mark.usefixtures("no_ray")
def test_machines_may_differ_where_the_user_allows_it_and_the_table_says_so(store: Path) -> None:
    ledger = Ledger.open(Store.open(store), "s")
    (record,) = finish(run_trials(board_here(store).next_trials()))
    (same,) = [
        row
        for row in ledger.rows()
        if (row["arm_id"], row["phase"]) == (record.trial.arm_id, record.trial.phase)
    ]
    with ledger.writing(a_study()) as writer:
        writer.remove([same["key"]])
        writer.put(record)
    assert run(a_study(), store=store, mixed=True, mlflow_uri="none").ran == 0
    text = to_markdown(table(a_study(), store=store))
    assert "2 of machine a mainframe" in text and f"1 of machine {environment('cpu')['machine']}" in text


@pytest.mark.usefixtures("no_ray")
def test_a_pair_of_compared_runs_on_different_kinds_of_machine_is_reported(store: Path) -> None:
    """Where machines may differ the baseline's run is made here, and the one that is compared with it was elsewhere."""
    assert table(a_study(), store=store).unlike == {}
    ledger = Ledger.open(Store.open(store), "s")
    board = board_here(store)
    while (trials := board.next_trials())[0].phase != "confirm":  # the search of the other arm does not end
        assert trials
    (record,) = finish(run_trials(trials, StoreKeeper(ledger.store)))
    assert record.trial.arm.loss.label == "cross_entropy"
    old = [row["key"] for row in ledger.rows() if row["arm_id"] == record.trial.arm_id]
    with ledger.writing(a_study()) as writer:
        writer.remove(old)
        writer.put(record)
    run(a_study(), store=store, mixed=True, mlflow_uri="none")
    result = table(a_study(), store=store)
    assert result.unlike == {("smooth_topk_svm", "r"): {1: ("a mainframe", environment("cpu")["machine"])}}
    assert "smooth_topk_svm, r: seed 1 on a mainframe, cross_entropy on " in to_markdown(result)


def test_readers_go_by_the_machine_of_the_last_run(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A table is read on a laptop, of what a cluster has trained."""
    assert "(n = 1)" in to_markdown(table(a_study(), store=store))
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
        ledger = fake_run(study, store, train, identities=counted, stop_after=stop_after)
        rows = ledger.rows(f"phase = 'search' AND arm_id = '{arm_id}'")
        return {row["number"]: Trial.from_json(row["config"]).values for row in rows}

    assert sorted(chosen(tmp_path, "4.9.0", stop_after=2)) == [0, 1]
    both = chosen(tmp_path, "5.1.0")
    assert sorted(both) == [0, 1, 2, 3]
    assert both == chosen(tmp_path / "alone", here[arm_id].environment["optuna"])
    result = table(study, store=tmp_path)
    assert result.choosers == {("smooth_topk_svm", "r"): {0: "optuna 4.9.0", 2: "optuna 5.1.0"}}
    assert not result.environments and result.left == 0
    assert "r: from trial 0 on optuna 4.9.0, from trial 2 on optuna 5.1.0." in to_markdown(result)


def _with_optuna(identity: Identity, version: str) -> Identity:
    environment = identity.environment
    return replace(identity, environment={n: version if n == "optuna" else v for n, v in environment.items()})


def test_a_record_has_the_environment_that_it_was_planned_for(tmp_path: Path) -> None:
    kept: list[TrialRecord] = []
    board = board_here(tmp_path)
    conductor = Conductor(board, kept.append, lambda _record: None, Orders(str(tmp_path), 30.0), pauses=())
    planned = conductor.start("t")
    assert planned is not None
    failed = TrialRecord(Trial.from_json(planned["trials"][0]), "failed", "before it knew where it was")
    conductor.receive("t", {"ended": True, "records": [failed.to_json()]})
    (record,) = kept
    assert record.trial.environment
    assert record.versions.items() >= record.trial.environment.items()


def test_nodes_that_differ_are_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    here = environment("cpu")
    result = [("10.0.0.1", here), ("10.0.0.2", {**here, "torch": "1.0"})]
    monkeypatch.setattr(machines, "_ask", lambda *_: result)
    with pytest.raises(ClusterError, match=r"10\.0\.0\.1 and 10\.0\.0\.2 would not .*: torch"):
        machines.common_environment(a_study())
    monkeypatch.setattr(machines, "_ask", lambda *_: [("a", here), ("b", here)])
    assert machines.common_environment(a_study()) == here


def test_a_folder_that_a_node_does_not_see_is_refused_and_nothing_is_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One of the nodes has a folder of the same name, and one none at all; another cluster sees it."""
    blind = {"10.0.0.2": tmp_path / "elsewhere", "10.0.0.3": tmp_path / "nowhere"}
    blind["10.0.0.2"].mkdir()
    places = {"10.0.0.1": tmp_path, **blind}

    def ask(
        _needs: object, _held: object, _patience: object, question: Callable[[str], str], path: str
    ) -> list[tuple[str, str]]:
        return [(node, question(str(folder / Path(path).name))) for node, folder in places.items()]

    monkeypatch.setattr(machines, "_ask", ask)
    store = Store.open(tmp_path / "not yet" / "runs")
    with pytest.raises(StoreError, match=r"node 10\.0\.0\.2, 10\.0\.0\.3 does not see: give --store"):
        machines.check_shared(store, a_study())
    assert [path.name for path in tmp_path.iterdir()] == ["elsewhere"]
    for node in blind:
        del places[node]
    machines.check_shared(store, a_study())
    machines.check_shared(Store.open("s3://bucket/runs?endpoint=http://127.0.0.1:9"), a_study())


class Answers:
    """Ray in place of nodes that answer in their order, some with the error of a node that is gone; None: it is silent.

    Nodes are busy: the first two minutes bring the first answer alone, and so does every longer wait.
    """

    def __init__(self, *answers: Any) -> None:
        self.answers, self.cancelled = answers, list[int]()
        self.waits = list[float | None]()

    def wait(
        self, left: list[int], num_returns: int = 1, timeout: float | None = None
    ) -> tuple[list[int], list[int]]:
        self.waits.append(timeout)
        nothing = self.answers[left[0]] is None or len(self.waits) == 2
        return ([], left) if nothing else (left[:1], left[1:])

    def get(self, number: int) -> object:
        if isinstance(answer := self.answers[number], Exception):
            raise answer
        return answer

    def get_runtime_context(self) -> SimpleNamespace:
        return SimpleNamespace(gcs_address="10.0.0.1:6379")

    def cancel(self, number: int) -> None:
        self.cancelled.append(number)


def answers_of(*answers: object) -> tuple[list[tuple[str, object]], list[str], list[int]]:
    """Return what nodes 0, 1, ... answered, what was told, and which were not waited for."""
    reported, fake = list[str](), Answers(*answers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machines, "ray", fake)
        asked = {number: str(number) for number in range(len(answers))}
        result = machines._answers(asked, Patience(report=reported.append))
    return result, reported, fake.cancelled


def test_a_node_that_is_lost_before_it_answers_is_left_out_and_reported() -> None:
    gone, taken = TaskUnschedulableError("no such node"), NodeDiedError("taken away")
    waited = "waiting for node{} to answer: starting, or busy"
    assert answers_of("a") == ([("0", "a")], [], [])
    assert answers_of("a", "b") == ([("0", "a")], [waited.format(" 1")], [1])
    result, reported, cancelled = answers_of(gone, taken, "c", "d")
    assert (result, cancelled) == ([("2", "c")], [3])
    left_out = [f"node {number} was lost before it answered, and is left out" for number in (0, 1)]
    assert reported == [waited.format("s 1, 2, 3"), *left_out]
    with pytest.raises(NotYetError, match=r"^node 0 was lost before it answered, node 1 was lost"):
        answers_of(gone, taken)
    with pytest.raises(ClusterError, match="node 1 cannot train the study's trials: The worker died"):
        answers_of(gone, WorkerCrashedError())


@pytest.mark.parametrize(
    ("given", "waits", "said"), [(5.0, [5, 120, 0], "120 s"), (300.0, [5, 120, 180], "300 s")]
)
def test_nodes_that_answer_nothing_are_waited_for_as_long_as_the_user_says(
    given: float, waits: list[float], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And for two minutes at least, in which a node that is there imports torch."""
    fake, messages = Answers(*[None] * 6), list[str]()
    monkeypatch.setattr(machines, "ray", fake)
    with pytest.raises(ClusterError, match=f"nodes a, b, c, d and 2 more did not answer within {said}"):
        machines._answers(dict(enumerate("abcdef")), Patience(given, messages.append))
    assert (fake.waits, fake.cancelled) == (waits, [0, 1, 2, 3, 4, 5])
    assert messages == ["waiting for nodes a, b, c, d and 2 more to answer: starting, or busy"]


@pytest.mark.parametrize(
    ("study", "held"), [({}, {}), ({"device": "cuda", "gpus": 0.5, "accelerator": "L4"}, {"GPU": 0.5})]
)
def test_an_answer_takes_no_core(
    study: dict[str, Any], held: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a cluster may all be taken, for days; a GPU only the process sees that has a part of it."""
    asked = list[Mapping[str, float]]()

    def ask(needs: Mapping[str, float], held: Mapping[str, float], *_: object) -> list[tuple[str, Any]]:
        assert needs["CPU"] == 1
        asked.append(held)
        return [("a", {})]

    monkeypatch.setattr(machines, "_ask", ask)
    machines.common_environment(replace(a_study(), **study))
    kind = {"accelerator_type:L4": 0.001} if study else {}
    assert asked == [{**held, **kind}]


def test_a_node_is_waited_for_where_none_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = list[str]()
    patience = Patience(5, messages.append, clock=iter((0, 1, 6)).__next__, sleep=lambda _: None)
    monkeypatch.setattr(machines, "nodes_for", lambda _needs: [])
    with pytest.raises(ClusterError, match=r"^no node is left on which a trial fits \(waited 5 s"):
        machines.common_environment(a_study(), patience)
    assert messages == ["no node is left on which a trial fits; waiting for up to 5 s, see --wait"]
