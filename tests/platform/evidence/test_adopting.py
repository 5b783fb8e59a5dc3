"""Results that count again after code, machine or packages have changed, because some came out the same."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from driven import run_in_process

from topk_platform import (
    Arm,
    Float,
    Loss,
    Model,
    Protocol,
    Recipe,
    Regime,
    Study,
    UserError,
    run,
)
from topk_platform import code_version as versions
from topk_platform.cli import main
from topk_platform.errors import StoreError
from topk_platform.evidence.adopting import Checked, adopt, give_up, replayed
from topk_platform.records import Ledger, Store, StoreKeeper, last_counted, read_history
from topk_platform.reports import to_markdown
from topk_platform.results.from_store import read, table
from topk_platform.running.estimate.planning import plan
from topk_platform.training import finish, run_trials

LAB = """
from torch.nn import CrossEntropyLoss
from topk_platform import Arm, Float, Loss, Model, Protocol, Recipe, Regime, Study

RATE = {"learning_rate": Float(0.01, 1, log=True)}
SMOOTHING = 0.1

def loss():
    return CrossEntropyLoss(label_smoothing=SMOOTHING)

def study():
    fixed = Loss("cross_entropy", fixed={"learning_rate": 0.1})
    searched = Loss("adopting_lab:loss", RATE, {"learning_rate": 0.1})
    arms = [Arm(Regime("plain", "digits"), Model("linear"), one, 3, Recipe(2)) for one in (fixed, searched)]
    return Study("adopted", arms, topk=(1, 3), trials=3, seeds=2)
"""
SAME = (
    "return CrossEntropyLoss(label_smoothing=SMOOTHING)",
    "return CrossEntropyLoss(label_smoothing=SMOOTHING * 1)",
)
OTHER = ("SMOOTHING = 0.1", "SMOOTHING = 0.2")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, train_study: Callable[[Study, Path], None]) -> Path:
    folder = tmp_path_factory.mktemp("adopting")
    (folder / "adopting_lab.py").write_text(LAB)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        forget()
        train_study(the_study(), folder / "runs")
    forget()
    return folder


@pytest.fixture
def lab(tmp_path: Path, trained: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(trained, tmp_path / "lab")
    monkeypatch.chdir(tmp_path / "lab")
    monkeypatch.syspath_prepend(str(tmp_path / "lab"))
    forget()
    return tmp_path / "lab"


def forget() -> None:
    """Let the lab be imported anew, as another process does."""
    versions._loaded_version.cache_clear()
    sys.modules.pop("adopting_lab", None)


def edit(lab: Path, change: tuple[str, str]) -> None:
    text = (lab / "adopting_lab.py").read_text()
    assert change[0] in text
    (lab / "adopting_lab.py").write_text(text.replace(*change))
    forget()


def the_study() -> Study:
    import adopting_lab  # type: ignore[import-not-found]

    result: Study = adopting_lab.study()
    return result


@pytest.fixture
def runs(lab: Path) -> Path:
    return lab / "runs"


def counted(runs: Path) -> list[int]:
    """How many rows of each arm count."""
    return [len(history.rows()) for history in read(the_study(), runs).histories.values()]


def test_trials_count_again_once_some_came_out_the_same_and_it_can_be_taken_back(
    lab: Path, runs: Path
) -> None:
    assert counted(runs) == [2, 5]
    edit(lab, SAME)
    assert counted(runs) == [2, 0]
    names: list[str] = []
    result = adopt(the_study(), store=runs, again=3, report=lambda one: names.append(one.name))
    assert [one.outcome for one in result.checked] == ["to the bit"] * 3 and result.trials == 5
    assert result.arms == ("plain/linear/loss",) and names == [one.name for one in result.checked]
    assert counted(runs) == [2, 5]
    assert "all the same to the bit" in result.summary
    line = f"5 trials are adopted from other code or another machine. 5: {result.summary}."
    assert line in to_markdown(table(the_study(), store=runs))
    assert plan(the_study(), store=runs).left == 0
    assert give_up(the_study(), store=runs) == ["plain/linear/loss"]
    assert counted(runs) == [2, 0]
    events = json.loads((runs / "adopted" / "adopted.json").read_bytes())["events"]
    assert [event["event"] for event in events] == ["adopted", "taken back"]
    assert [one["outcome"] for one in events[0]["evidence"]["trials"]] == ["to the bit"] * 3
    assert {one["key"] for one in events[0]["evidence"]["trials"]} == set(names)


def test_what_counts_already_is_nothing_to_adopt(runs: Path) -> None:
    result = adopt(the_study(), store=runs)
    assert (result.trials, result.checked, result.summary) == (0, (), "")
    assert not (runs / "adopted" / "adopted.json").exists()


def test_trials_that_come_out_otherwise_are_named_and_nothing_is_adopted(lab: Path, runs: Path) -> None:
    edit(lab, OTHER)
    result = adopt(the_study(), store=runs, again=2)
    assert [one.outcome for one in result.differing] == ["differs"] * 2 and not result.summary
    assert "the code has changed since" in result.differing[0].why
    assert counted(runs) == [2, 0]
    within = adopt(the_study(), store=runs, within=1.5)
    assert [one.outcome for one in within.checked] == ["within tolerance"]
    assert "0 the same to the bit and 1 within 1.5 in every metric" in within.summary
    assert counted(runs) == [2, 5]


def test_an_adoption_counts_for_the_code_that_it_was_made_with_alone(lab: Path, runs: Path) -> None:
    edit(lab, SAME)
    adopt(the_study(), store=runs)
    edit(lab, OTHER)
    assert counted(runs) == [2, 0]
    edit(lab, OTHER[::-1])
    assert counted(runs) == [2, 5]
    edit(lab, SAME[::-1])
    assert counted(runs) == [2, 5]  # by themselves
    assert not any(h.adopted for h in read(the_study(), runs).histories.values())


def test_new_trials_continue_the_search_of_those_adopted_and_take_their_place(
    lab: Path, runs: Path, train_study: Callable[[Study, Path], None]
) -> None:
    edit(lab, SAME)
    study = the_study()
    adopt(study, store=runs)
    ledger = Ledger.open(Store.open(runs), study.name)
    identities = last_counted(ledger, study)
    *_, arm_id = identities
    history = read_history(ledger, study, identities)[arm_id]
    assert sorted(history.search) == [0, 1, 2] and len(history.ended()[2].curve) == 2
    longer = dataclasses.replace(study, trials=4)
    assert [arm.left for arm in plan(longer, store=runs).arms] == [
        0,
        3,
    ]  # one more, and whatever is best then
    old = {row["key"] for row in history.rows()}
    ledger.identify({i: dataclasses.replace(result, adopted=()) for i, result in identities.items()})
    (runs / study.name / "adopted.json").rename(runs / "kept.json")
    train_study(study, runs)  # all of the arm again, as another machine may have done meanwhile
    (runs / "kept.json").rename(runs / study.name / "adopted.json")
    again = read(study, runs).histories[arm_id]
    assert len(again.rows()) == 5 and not {row["key"] for row in again.rows()} & old and not again.adopted


def test_another_machine_and_torch(lab: Path, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from topk_platform import training

    study, here = the_study(), training.environment("cpu")
    monkeypatch.setattr(training, "environment", lambda _: {**here, "torch": "9.0", "machine": "another"})
    result = adopt(study, store=runs, again=1)
    assert len(result.checked) == 2  # one of each arm
    assert counted(runs) == [2, 5]
    shown = to_markdown(table(study, store=runs))
    assert "7 trials are adopted from other code or another machine." in shown
    ledger = Ledger.open(Store.open(runs), study.name)
    assert {one.bits["torch"] for one in ledger.identities().values()} == {"9.0"}


def test_both_phases_and_all_arms_are_drawn(lab: Path, runs: Path) -> None:
    edit(lab, SAME)
    study = the_study()
    rows = {row["key"]: row for row in Ledger.open(Store.open(runs), study.name).rows()}
    drawn = [rows[one.name]["phase"] for one in adopt(study, store=runs, again=2, seed=3).checked]
    assert sorted(drawn) == ["confirm", "search"]
    give_up(study, store=runs)
    keys = [one.name for one in adopt(study, store=runs, again=4, seed=1).checked]
    give_up(study, store=runs)
    assert keys == [one.name for one in adopt(study, store=runs, again=4, seed=1).checked]


def test_an_ensemble_is_trained_with_all_its_members(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loss = Loss("adopting_lab:loss", {"learning_rate": Float(0.01, 1, log=True)}, {"learning_rate": 0.1})
    arm = Arm(
        Regime("plain", "digits"), Model("linear"), loss, 3, Recipe(1), protocol=Protocol(ensemble=2, width=2)
    )
    study = Study("together", [arm], topk=(1, 3), trials=2, seeds=2)
    run_in_process(monkeypatch, lambda trials, store: finish(run_trials(trials, StoreKeeper(store))))
    assert run(study, store=lab / "runs").ran == 4
    edit(lab, SAME)
    result = adopt(study, store=lab / "runs", again=4)
    assert [one.outcome for one in result.checked] == ["to the bit"] * 4


def test_what_is_wrong_is_reported(lab: Path, runs: Path) -> None:
    with pytest.raises(UserError, match="replay must be at least 1 and within at least 0, got 0 and None"):
        adopt(the_study(), store=runs, again=0)
    with pytest.raises(StoreError, match="holds nothing of study"):
        adopt(the_study(), store=lab / "elsewhere")
    (runs / "adopted" / "adopted.json").write_text("[{}]")
    with pytest.raises(StoreError, match=r"adopted\.json is damaged; put back a copy of it"):
        counted(runs)


def test_the_command(
    lab: Path, runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def call(*arguments: str) -> tuple[int, str]:
        forget()
        monkeypatch.setattr(
            sys, "argv", ["topk", "adopt", "adopting_lab:study", "--store", str(runs), *arguments]
        )
        with pytest.raises(SystemExit) as ended:
            main()
        out = capsys.readouterr()
        return int(ended.value.code or 0), out.out + out.err

    code, out = call()
    assert code == 0 and "nothing to adopt" in out
    edit(lab, SAME)
    code, out = call("--replay", "2")
    assert code == 0 and out.count(": to the bit\n") == 2
    assert "5 trials of plain/linear/loss are adopted" in out
    result = json.loads(call("--json")[1])
    assert (result["trials"], result["checked"], result["adopted"]) == (0, [], False)
    code, out = call("--undo")
    assert code == 0 and "plain/linear/loss" in out
    assert call("--undo")[0] == 2
    edit(lab, OTHER)
    code, out = call()
    assert code == 1 and "are not adopted" in out


def test_a_plan_says_what_an_upgrade_repeats_and_how_to_avoid_it(
    lab: Path, runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(lab, SAME)
    monkeypatch.setattr(
        sys,
        "argv",
        ["topk", "plan", "adopting_lab:study", "--only", "*/loss", "--data", "here", "--trials", "6"],
    )
    monkeypatch.setenv("COLUMNS", "400")
    with pytest.raises(SystemExit):
        main()
    out = capsys.readouterr().out
    assert "topk adopt adopting_lab:study --only '*/loss' --trials 6 --data here --replay 1`" in out


Differences = dict[str, tuple[Any, Any]]


def checked(differences: Differences, tolerance: float = 0.005) -> Checked:
    recorded = SimpleNamespace(row={"key": "k"}, trial=SimpleNamespace(code_version="v"))
    again = SimpleNamespace(
        recorded=recorded,
        differences=differences,
        differing=tuple(differences),
        code_version="v",
        environment="",
    )
    return replayed(again, tolerance)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        (0.5, math.nan),
        (math.nan, 0.5),
        (math.inf, 0.5),
        (0.5, math.inf),
        (-math.inf, math.inf),
        (None, 0.5),
        (0.5, None),
    ],
)
def test_a_number_that_is_not_finite_is_within_no_tolerance(
    change: tuple[float | None, float | None],
) -> None:
    """A comparison with NaN is false, so whether NaN was the largest depended on the order."""
    small: Differences = {"a": (0.5, 0.501), "z": (0.5, 0.502)}
    for differences in ({"test.nll": change, **small}, {**small, "test.nll": change}):
        result = checked(differences)
        assert result.outcome == "differs" and "test.nll: difference inf" in result.why


def test_the_largest_difference_decides() -> None:
    differences = {"a": (0.5, 0.501), "b": (100.0, 100.2), "ranks": (None, None)}
    result = checked(differences)
    assert (result.name, result.outcome) == ("k", "within tolerance")
    assert "b: difference 0.002" in result.why and "ranks" in result.why
    assert checked(differences, 0.0019).outcome == checked(differences, -1.0).outcome == "differs"


def test_ranks_alone_differ_where_every_bit_must_be_equal() -> None:
    result = checked({"ranks": (None, None)})
    assert result.outcome == "within tolerance" and "ranks" in result.why
    assert checked({"ranks": (None, None)}, -1.0).outcome == "differs"


def test_another_status_is_within_no_tolerance() -> None:
    recorded = SimpleNamespace(row={"key": "k", "status": "pruned"}, trial=SimpleNamespace(code_version="v"))
    again = SimpleNamespace(
        recorded=recorded,
        record=SimpleNamespace(status="completed", reason="nan"),
        differing=("status",),
        code_version="v",
        environment="",
    )
    result = replayed(again, 0.005)  # type: ignore[arg-type]
    assert result.outcome == "differs"
    assert all(word in result.why for word in ("pruned", "completed", "nan"))
