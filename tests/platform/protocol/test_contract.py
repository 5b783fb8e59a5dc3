"""Any number of workers, any order of endings, any interruption: the same trials, and the same table of them.

Trainings are made up, as functions of the trial alone; all else is the program's: what ends becomes rows, and a study
that was cut off goes on from these.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_studies import small_study
from made_trainings import SPAN, histories_of, keys, run_on, state_of, trained

from topk_platform import TPE, Float, Loss, NoPruning, Protocol, Quantile, Random, Recipe, Study
from topk_platform.protocol import ArmProgress, StudyProgress
from topk_platform.protocol.search_progress import Ended
from topk_platform.records.history import results_of
from topk_platform.reports.result_tables import to_markdown
from topk_platform.reports.table_data import to_csv
from topk_platform.results import build_table
from topk_platform.specs import Trial, TrialRecord

SPACE = {"tau": Float(0.01, 10, log=True), "learning_rate": Float(0.001, 1, log=True)}
LOSS = Loss("smooth_topk_svm", SPACE, {"tau": 1.0, "learning_rate": 0.1})


def a_study(protocol: Protocol, *losses: Loss, **fields: Any) -> Study:
    asked = {"regimes": ["r0"], "recipe": Recipe(4), "trials": 6, "seeds": 6, **fields}
    return small_study(*(losses or (LOSS, "cross_entropy")), protocol=protocol, **asked)


STUDIES = {
    "two searches": a_study(Protocol(TPE(random=1), searches=2)),
    "three wide ones": a_study(Protocol(TPE(random=1), searches=3, width=2), trials=9),
    "in ensembles": a_study(Protocol(TPE(random=1), searches=2, ensemble=2, width=2), trials=8),
    "pruned": a_study(
        Protocol(TPE(random=3), pruner=Quantile(rungs=(0.25, 0.5), startup=2), width=2), trials=9, seeds=2
    ),
    "two wide regimes": a_study(
        Protocol(TPE(random=1), width=2), LOSS, regimes=["r0", "r1"], trials=5, seeds=2
    ),
}


def of_random_draws(study: Study) -> Study:
    """The same study with a sampler that takes no time."""
    arms = [
        dataclasses.replace(arm, protocol=dataclasses.replace(arm.protocol, sampler=Random()))
        for arm in study.arms
    ]
    return dataclasses.replace(study, arms=arms)


STATES = {name: of_random_draws(study) for name, study in STUDIES.items()}


CHECKED = 0.25
"""The share of points at which a run's state is compared with its rows; a comparison reads all rows so far."""


def facts(arm: ArmProgress) -> dict[str, object]:
    """What follows from the trials of an arm that have ended."""
    return {
        "chosen": [chosen and (chosen.number, chosen.values) for chosen in arm.chosen],
        "left": arm.left,
        "searching": arm.searching,
        "missing": arm.missing(),
        "confirmed": [search.ended for search in arm.searches],
        "workers": [(search.search_workers, search.confirm_workers) for search in arm.searches],
    }


def check_states(study: Study, live: StudyProgress, records: Sequence[TrialRecord]) -> None:
    """The state that a run kept up to date is the one that its records give, for a run and for a table."""
    histories = histories_of(study, records)
    read, rebuilt = results_of(study, histories), state_of(study, records)
    for arm_id, arm in live.arms.items():
        assert facts(arm) == facts(rebuilt.arms[arm_id]) == facts(read[arm_id].state)
        again = rebuilt.arms[arm_id]
        again.take(arm.running | arm.open)
        assert arm.next_slot() == again.next_slot()
        assert arm.along == again.along
    assert sum(arm.left for arm in read.values()) == live.left == rebuilt.left


@pytest.mark.parametrize("name", STATES)
@given(
    seed=st.integers(0, 10**6), workers=st.integers(1, 6), again=st.floats(0, 0.4), open_=st.floats(0, 0.1)
)
def test_the_state_kept_by_a_run_is_the_one_that_its_rows_give(
    name: str, seed: int, workers: int, again: float, open_: float
) -> None:
    """At random points and at the end: with trials that run, that are tried again, that failed, and that stay open."""
    study, draw = STATES[name], random.Random(seed)
    progress, records, running = state_of(study), list[TrialRecord](), list[tuple[Trial, ...]]()
    while True:
        while len(running) < workers and (trials := progress.next_trials()):
            running.append(trials)
        if not running or draw.random() < CHECKED:
            check_states(study, progress, records)
        if not running:
            break
        fate = draw.random()
        for trial in running.pop(draw.randrange(len(running))):
            if fate < open_ and not progress.has_ended(trial):
                progress.leave(trial)
            elif fate < open_ + again or progress.has_ended(trial):
                progress.release(trial)
            else:
                failed = draw.random() < 0.1
                records.append(TrialRecord(trial, "failed", "why") if failed else trained(trial))
                progress.end(trial, Ended.from_record(records[-1]))
    assert progress.left == 0 or progress.stuck


@cache
def undisturbed(name: str) -> list[TrialRecord]:
    return run_on(STUDIES[name], 1, 0)


@pytest.mark.parametrize("name", STUDIES)
@given(workers=st.integers(2, 9), seed=st.integers(0, 999), stop=st.integers(1, 30))
def test_the_same_trials_and_the_same_table(name: str, workers: int, seed: int, stop: int) -> None:
    study, whole = STUDIES[name], undisturbed(name)
    cut_off = run_on(study, workers, seed, most=stop)
    resumed = run_on(study, 3, seed + 1, cut_off)
    assert len(keys(resumed)) == len(resumed)  # nothing ran twice
    assert keys(resumed) == keys(whole)
    tables = [build_table(study, histories_of(study, records)) for records in (whole, resumed)]
    assert len({to_markdown(table) for table in tables}) == 1
    assert len({to_csv(table) for table in tables}) == 1


def searched(records: Iterable[TrialRecord], study: Study, arm: int = 0) -> dict[int, TrialRecord]:
    arm_id = study.arm_id(study.arms[arm])
    mine = (r for r in records if r.trial.arm_id == arm_id and r.trial.phase == "search")
    return {record.trial.number: record for record in mine}


def test_every_search_draws_its_own_values() -> None:
    study = a_study(Protocol(TPE(random=2), searches=2, pruner=NoPruning()), LOSS, trials=12)
    result = searched(run_on(study, 1, 0), study)
    assert result[0].trial.values == result[SPAN].trial.values == LOSS.first
    assert len({record.trial.values["tau"] for record in result.values()}) == 12 - 1


def test_seeds_confirm_the_best_of_their_own_search() -> None:
    study = a_study(Protocol(TPE(random=3), searches=3, pruner=NoPruning()), LOSS, trials=15, seeds=6)
    records = run_on(study, 4, 5)
    by_number = searched(records, study)
    best = {}
    for search in range(3):
        own = (by_number[SPAN * search + index] for index in range(5))
        known = [record for record in own if record.status == "completed"]
        best[search] = max(known, key=lambda r: (r.validation["top3"], -r.trial.number)).trial.number
    confirmed = {r.trial.seed: r.trial.number for r in records if r.trial.phase == "confirm"}
    assert confirmed == {SPAN * search + index: best[search] for search in range(3) for index in (1, 2)}
    assert len(set(best.values())) > 1  # or else this would tell nothing
    table = build_table(study, histories_of(study, records))
    (choices,) = table.choices.values()
    assert [(c.search, c.values) for c in choices] == [
        (s, by_number[n].trial.values) for s, n in best.items()
    ]
    assert [choice.trials for choice in choices] == [5, 5, 5]
    assert table.cells["smooth_topk_svm", "r0", "top3"].confirmed.ended == 6
