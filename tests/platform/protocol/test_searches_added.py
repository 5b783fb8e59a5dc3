"""Searches that are added to a study that has run: nothing is trained again, and nothing was numbered otherwise."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_studies import small_study
from made_trainings import SPAN, keys, run_on

from topk_platform import TPE, Float, Loss, NoPruning, Protocol, Random, Recipe, Study
from topk_platform.identity import Identity
from topk_platform.protocol import ArmProgress
from topk_platform.protocol.search_progress import Ended
from topk_platform.specs import Repeats

LOSS = Loss("smooth_topk_svm", {"tau": Float(0.01, 10, log=True)}, {"tau": 1.0})
OTHER = Loss("cross_entropy", {"learning_rate": Float(0.01, 1)}, {"learning_rate": 0.1})


def a_study(*losses: Loss, trials: int = 6, seeds: int = 4, **how: Any) -> Study:
    asked = {"recipe": Recipe(4), "protocol": Protocol(**how), "trials": trials, "seeds": seeds}
    return small_study(*(losses or (LOSS,)), name="golden", regimes=["r0", "r1"], **asked)


GOLDEN = {
    1: ("9fadfead7d0f8bbd7c7c", "6614c50a46b6b5410019", "e840d8750a63a577f8bf"),
    2: ("7b50eb9c769e5fa4ed3a", "863ef73ce9fefac8b992", "1524c7011b4fbfb85f6e"),
}
"""By the size of stacks: the first arm's identity, and the keys of its first trial and of seed 3."""


@pytest.mark.parametrize("ensemble", GOLDEN)
@pytest.mark.parametrize("searches", [1, 3])
def test_the_first_search_has_the_keys_that_the_only_one_always_had(ensemble: int, searches: int) -> None:
    study = a_study(ensemble=ensemble).with_budget(searches=searches)
    arm = ArmProgress(study, study.arms[0], Identity("code", "data"))
    arm.searched[0] = Ended(0, {"tau": 1.0}, "completed", {4: 0.5})
    keys = arm.trial(("search", 0, 0)).key, arm.trial(("confirm", 0, 3)).key
    assert (study.arm_id(study.arms[0]), *keys) == GOLDEN[ensemble]


@given(
    searches=st.integers(1, 3),
    each=st.integers(1, 4),
    ensemble=st.integers(1, 3),
    width=st.integers(1, 3),
    workers=st.integers(1, 4),
)
def test_each_search_has_a_seed_and_a_first_trial_of_its_own_the_same_in_all_arms(
    searches: int, each: int, ensemble: int, width: int, workers: int
) -> None:
    how = {"sampler": Random(), "pruner": NoPruning(), "ensemble": ensemble, "width": width}
    study = a_study(LOSS, OTHER, trials=searches * each, seeds=searches, searches=searches, **how)
    records = run_on(study, workers, each)
    searched = [record for record in records if record.trial.phase == "search"]
    chosen = {(r.trial.arm_id, r.trial.seed) for r in searched if r.status == "completed"}
    assert study.size == 4 * searches * (each + 1)
    assert ensemble > 1 or (len(searched), len(records)) == (4 * searches * each, len(searched) + len(chosen))
    for arm in study.arms:
        trials = [record.trial for record in records if record.trial.arm == arm.searched(1)]
        seeds = {(t.phase, t.number // SPAN if t.phase == "search" else -1, t.seed) for t in trials}
        of_searches = {("search", search, SPAN * search) for search in range(searches)}
        assert {slot for slot in seeds if slot[0] == "search"} == of_searches
        assert not {seed for _, _, seed in of_searches} & {
            seed for phase, _, seed in seeds if phase == "confirm"
        }
        first = [t for t in trials if t.phase == "search" and t.number % SPAN == 0]
        assert sorted(t.number for t in first) == [seed for _, _, seed in sorted(of_searches)]
        assert all(t.values == arm.loss.first for t in first) and len({t.key for t in first}) == searches
    more = run_on(study.with_budget(searches=searches + 1), workers, each, records)
    assert keys(records) <= keys(more)
    direct = run_on(study.with_budget(searches=searches + 1), 1, 0)
    assert keys(more) == keys(direct)


def test_a_study_with_another_name_has_the_same_arms_and_suggestions() -> None:
    study = a_study(LOSS, OTHER, sampler=TPE(random=2)).with_budget(searches=2)
    renamed = dataclasses.replace(study, name="renamed")
    assert list(map(study.arm_id, study.arms)) == list(map(renamed.arm_id, renamed.arms))
    arms = [
        ArmProgress(one, one.arms[0], Identity("code", "data"), searched=PAST, confirmed={})
        for one in (study, renamed)
    ]
    for slot in (("search", 5, 0), ("search", 1_000_005, 1_000_000)):
        one, other = (progress.trial(slot) for progress in arms)
        assert dataclasses.replace(one, study="renamed") == other


PAST = {
    n: Ended(n, {"tau": 0.1 + n % 100}, "completed", {4: 0.5})
    for s in (0, 1_000_000)
    for n in range(s, s + 5)
}


def test_a_budget_given_with_the_searches_is_shared_out_among_them() -> None:
    study = a_study(trials=6, seeds=4)
    assert dataclasses.astuple(study.with_budget(searches=3))  # a study like any other
    result = study.with_budget(trials=12, searches=3)
    assert (result.trials, result.seeds, result.searches) == (12, 12, 3)
    assert result.arms[1].repeats.numbers(2, result.trials) == (2_000_000, 2_000_001, 2_000_002, 2_000_003)
    assert result.with_budget(searches=1).trials == 4


@given(count=st.integers(1, 4), more=st.integers(1, 3), each=st.integers(1, 6), size=st.integers(1, 4))
def test_numbers_seeds_and_blocks_do_not_change_with_more_searches(
    count: int, more: int, each: int, size: int
) -> None:
    few, many = Repeats(count), Repeats(count + more)
    for search in range(count):
        numbers = few.numbers(search, count * each)
        assert len(numbers) == each and len(set(numbers)) == each
        assert numbers == many.numbers(search, (count + more) * each)
        assert few.seeds_of(search, count * each) == many.seeds_of(search, (count + more) * each)
        for number in numbers:
            assert few.block(number, size) == many.block(number, size)
            assert number in few.block(number, size) and len(few.block(number, size)) == size
            assert {few.search_of(member) for member in few.block(number, size)} == {search}
            assert few.number_at(few.search_of(number), few.position(number)) == number
    seeds = few.seeds(count * each)
    assert len(set(seeds)) == count * each and [few.rank_of(seed) for seed in seeds] == [
        *range(1, count * each + 1)
    ]
    assert all(seed in few.seed_block(seed, size) for seed in seeds)
    assert len({n for search in range(count) for n in few.numbers(search, count * each)}) == count * each
    searching = [few.search_seed(search) for search in range(count)]
    trained = {member for seed in seeds for member in few.seed_block(seed, size)}
    assert tuple(searching) == few.search_seeds == many.search_seeds[:count]
    assert len(set(searching)) == count and not trained & set(searching)
    assert {few.rank_of(seed) for seed in searching} == {0}
