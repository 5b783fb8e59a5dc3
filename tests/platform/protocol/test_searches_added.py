"""Searches that are added to a study that has run: nothing is trained again, and nothing was numbered otherwise."""

from __future__ import annotations

import dataclasses
import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topk_platform import TPE, Arm, Float, Loss, Model, Protocol, Recipe, Regime, Study
from topk_platform.identity import Identity
from topk_platform.protocol import ArmBoard
from topk_platform.protocol.ended import Ended
from topk_platform.specs import Repeats, TrialRecord

LOSS = Loss("smooth_topk_svm", {"tau": Float(0.01, 10, log=True)}, {"tau": 1.0})
FIXED = Loss("cross_entropy")


def contract() -> ModuleType:
    """The made-up trainings of ``test_contract.py``, beside this file."""
    spec = importlib.util.spec_from_file_location("contract", Path(__file__).with_name("test_contract.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CONTRACT = contract()


def a_study(*losses: Loss, trials: int = 6, seeds: int = 4, **how: Any) -> Study:
    arms = [
        Arm(Regime(name, "digits"), Model("mlp"), loss, 3, Recipe(4), protocol=Protocol(**how))
        for name in ("r0", "r1")
        for loss in losses or (LOSS,)
    ]
    return Study("golden", arms, topk=(1, 3), trials=trials, seeds=seeds)


GOLDEN = {
    1: ("54bf283c2cb08f8dc2c7", "fe286ff36a2da9f417e2", "41b79d5aa00144f9e422"),
    2: ("6e2e00fabd4cd7df1c47", "ada796e5152339a059e2", "7e989ba3521585232ec1"),
}
"""By the size of stacks: the first arm's identity, and the keys of its first trial and of seed 3."""


@pytest.mark.parametrize("ensemble", GOLDEN)
@pytest.mark.parametrize("searches", [1, 3])
def test_the_first_search_has_the_keys_that_the_only_one_always_had(ensemble: int, searches: int) -> None:
    study = a_study(ensemble=ensemble).with_budget(searches=searches)
    arm = ArmBoard(study, study.arms[0], Identity("code", "data"))
    arm.searched[0] = Ended(0, {"tau": 1.0}, "completed", {4: 0.5})
    keys = arm.trial(("search", 0, 0)).key, arm.trial(("confirm", 0, 3)).key
    assert (study.arm_id(study.arms[0]), *keys) == GOLDEN[ensemble]


STUDIES = {
    "plain": a_study(LOSS, FIXED, sampler=TPE(random=2)),
    "wide": a_study(sampler=TPE(random=2), width=3),
    "stacks": a_study(sampler=TPE(random=1), width=2, ensemble=3),
}


@cache
def searched_thrice(name: str) -> list[TrialRecord]:
    """The records of three searches from the start, by one worker."""
    records: list[TrialRecord] = CONTRACT.run_on(STUDIES[name].with_budget(searches=3), 1, 0)
    return records


@pytest.mark.slow
@pytest.mark.parametrize("name", STUDIES)
@given(workers=st.integers(1, 5), seed=st.integers(0, 99))
def test_what_has_run_stays_and_the_rest_is_as_if_searched_so_often_from_the_start(
    name: str, workers: int, seed: int
) -> None:
    once = STUDIES[name]
    thrice = once.with_budget(searches=3)
    assert (thrice.trials, thrice.seeds) == (3 * once.trials, 3 * once.seeds)
    first = CONTRACT.run_on(once, workers, seed)
    more = CONTRACT.run_on(thrice, workers, seed, first)
    direct = searched_thrice(name)
    assert len(CONTRACT.keys(more)) == len(more)
    assert CONTRACT.keys(first) <= CONTRACT.keys(more) == CONTRACT.keys(direct)


def test_seeds_are_the_same_in_all_arms_those_that_search_nothing_among_them() -> None:
    study = a_study(LOSS, FIXED).with_budget(searches=3, seeds=6)
    seeds: dict[str, set[int]] = {arm.name: set() for arm in study.arms}
    for record in CONTRACT.run_on(study, 3, 0):
        seeds[record.trial.arm.name] |= {record.trial.seed} - {0}
    assert set(map(frozenset, seeds.values())) == {
        frozenset({1, 2, 1_000_001, 1_000_002, 2_000_001, 2_000_002})
    }


def test_a_budget_given_with_the_searches_is_shared_out_among_them() -> None:
    study = a_study(trials=6, seeds=4)
    assert dataclasses.astuple(study.with_budget(searches=3))  # a study like any other
    result = study.with_budget(trials=12, searches=3)
    assert (result.trials, result.seeds, result.searches) == (12, 12, 3)
    assert result.arms[1].repeats.numbers(2, result.trials) == (0, 2_000_001, 2_000_002, 2_000_003)
    assert result.with_budget(searches=1).trials == 4


@given(
    count=st.integers(1, 4),
    more=st.integers(1, 3),
    each=st.integers(1, 6),
    size=st.integers(1, 4),
)
def test_numbers_seeds_and_blocks_do_not_change_with_more_searches(
    count: int, more: int, each: int, size: int
) -> None:
    few, many = Repeats(count), Repeats(count + more)
    for search in range(count):
        numbers = few.numbers(search, count * each)
        assert len(numbers) == each and len(set(numbers)) == each
        assert numbers == many.numbers(search, (count + more) * each)
        assert few.seeds_of(search, count * each) == many.seeds_of(search, (count + more) * each)
        for number in few.own(search, count * each):
            assert few.block(number, size) == many.block(number, size)
            assert number in few.block(number, size)
            assert few.number_at(few.search_of(number), few.position(number)) == number
    seeds = few.seeds(count * each)
    assert len(set(seeds)) == count * each and [few.rank_of(seed) for seed in seeds] == [
        *range(1, count * each + 1)
    ]
    assert all(seed in few.seed_block(seed, size) for seed in seeds)
    own = [n for search in range(count) for n in few.own(search, count * each)]
    assert len(set(own)) == len(own) == few.asked(count * each)
