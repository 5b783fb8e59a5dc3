"""Every sampler keeps the contract and suggests what it did when it was tested; what cannot be searched is told."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import optuna
import pytest
from made_studies import small_study
from recorded_suggestions import recorded_suggestions

from topk_platform import TPE, Choice, Float, Grid, Int, Loss, OptunaSampler, Protocol, Random, UserError
from topk_platform.protocol.search_progress import Ended
from topk_platform.protocol.suggest import check_sampler, suggest
from topk_platform.specs import Arm, Dimension, Sampler, Scalar, Status, canonical_json
from topk_platform.testing import SamplerContract

CONDITIONAL = {
    "space": {
        "samples": Choice((None, 1, 10)),
        "learning_rate": Float(0.001, 1, log=True),
        "epsilon": Float(0.01, 10, log=True, when={"samples": (1, 10)}),
        "margin": Float(0.1, 2.0),
    },
    "first": {"samples": None, "learning_rate": 0.1, "margin": 1.0},
}


class Wandering(optuna.samplers.RandomSampler):
    """Walks from its last point, which it wrote down with the trial and, how far it is, with the study."""

    def sample_relative(self, study: Any, trial: Any, search_space: Any) -> dict[str, Any]:
        steps = study._storage.get_study_system_attrs(study._study_id).get("steps", 0)
        study._storage.set_study_system_attr(study._study_id, "steps", steps + 1)
        earlier = [t.system_attrs.get("at", 0.0) for t in study.get_trials(deepcopy=False)[:-1]]
        at = round((sum(earlier) + 0.37 * (steps + 1)) % 1, 6)
        study._storage.set_trial_system_attr(trial._trial_id, "at", at)
        return {"margin": 2 * at}

    def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, Any]:
        return {"margin": optuna.distributions.FloatDistribution(0.0, 2.0)}


def wandering(seed: int) -> Wandering:
    return Wandering(seed=seed)


WANDERING = OptunaSampler(f"{__name__}:wandering", random=2)
HALTON = OptunaSampler("QMCSampler", {"qmc_type": "halton", "scramble": False})


class TestRandom(SamplerContract):
    sampler = Random()


class TestHalton(SamplerContract):
    sampler = HALTON
    width = 4


class TestGrid(SamplerContract):
    sampler = Grid({"learning_rate": 2, "margin": (0.5, 2.0), "samples": (10,), "mode": ("a", None)})


class TestTpe(SamplerContract):
    sampler = TPE(random=3)


class TestTpeInEnsembles(SamplerContract):
    sampler = TPE(random=3, multivariate=False)
    ensemble = 4
    width = 1


class TestAnotherOfOptunas(SamplerContract):
    sampler = OptunaSampler("NSGAIIISampler", {"population_size": 3}, random=3)


class TestOneOfOnesOwn(SamplerContract):
    sampler = WANDERING


class TestConditionalTpe(SamplerContract):
    sampler = TPE(random=3)
    space, first = CONDITIONAL["space"], CONDITIONAL["first"]  # type: ignore[assignment]


class TestConditionalGrid(SamplerContract):
    sampler = Grid(2)
    space, first = CONDITIONAL["space"], CONDITIONAL["first"]  # type: ignore[assignment]
    trials = 24


class _Remembers(optuna.samplers.RandomSampler):
    """Suggests by how often it was made: a state that nothing leads it through again."""

    made: ClassVar[Iterator[int]] = itertools.count()

    def __init__(self) -> None:
        super().__init__(seed=next(self.made))


def forgetful() -> _Remembers:
    return _Remembers()


def test_the_contract_catches_what_is_no_function_of_its_history() -> None:
    broken = type("Broken", (SamplerContract,), {"sampler": OptunaSampler(f"{__name__}:forgetful")})()
    for test in (
        broken.test_suggestions_do_not_depend_on_workers_or_timing,
        broken.test_an_interrupted_study_goes_on_to_the_same_trials,
        broken.test_a_suggestion_is_a_function_of_arm_number_and_known_results,
    ):
        with pytest.raises(AssertionError):
            test()


class Stepping(optuna.samplers.RandomSampler):
    """Counts its own calls, so that a fresh one always begins with the same number."""

    calls = 0

    def sample_independent(self, study: Any, trial: Any, name: str, distribution: Any) -> Any:
        self.calls += 1
        if isinstance(distribution, optuna.distributions.FloatDistribution):
            return distribution.low + (distribution.high - distribution.low) * (self.calls * 0.37 % 1)
        return super().sample_independent(study, trial, name, distribution)


def test_the_contract_catches_a_sampler_that_suggests_one_number_for_ever() -> None:
    stepping = OptunaSampler(f"{__name__}:Stepping", random=2)
    with pytest.raises(AssertionError, match="learning_rate"):
        type("Counts", (SamplerContract,), {"sampler": stepping})().test_suggestions_vary()


LOSS = Loss("cross_entropy", SamplerContract.space, SamplerContract.first)


def a_history() -> list[Ended]:
    """Trials with values of no sampler's, of which one was stopped and one failed."""
    past = [Ended(0, LOSS.first, "completed", {1: 0.5, 2: 0.6})]
    for number in range(1, 12):
        values = {
            "learning_rate": 0.002 * 1.7**number,
            "margin": 0.37 * number % 2,
            "samples": 1 + 7 * number % 50,
            "mode": ("a", None, 2)[number % 3],
        }
        status: Status = "pruned" if number == 4 else "failed" if number == 7 else "completed"
        curve = {} if status == "failed" else {1: 0.4 + 0.31 * number % 0.5}
        past.append(Ended(number, values, status, curve))
    return past


SAMPLERS: dict[str, Sampler] = {
    "Random": Random(),
    "Halton": HALTON,
    "Grid": Grid(points={"learning_rate": 3, "margin": (0.5, 2.0), "samples": (1, 10), "mode": ("a", None)}),
    "TPE": TPE(random=5, multivariate=True, candidates=24),
    "univariate": TPE(random=5, multivariate=False, candidates=10),
    "NSGA-II": OptunaSampler("NSGAIISampler", {"population_size": 4}),
    "reference": OptunaSampler("optuna.samplers:NSGAIIISampler", {"population_size": 4}, random=3),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_suggestions_are_those_recorded_for_this_version_of_optuna(name: str) -> None:
    suggested = list(suggest("golden", LOSS, Protocol(SAMPLERS[name]), 12, a_history()).values())
    # Exponentials and logarithms differ in their last bits between processors.
    assert suggested == [
        pytest.approx(value, rel=1e-9) if isinstance(value, float) else value
        for value in recorded_suggestions(name, suggested)
    ]


def grid_of(grid: Grid, space: dict[str, Dimension], first: dict[str, Scalar]) -> list[tuple[Scalar, ...]]:
    return [tuple(point.values()) for point in grid.combinations(space, first)]


def test_a_grid_takes_every_combination_once_the_papers_first() -> None:
    space: dict[str, Dimension] = {
        "rate": Float(0.01, 1, log=True),
        "samples": Int(1, 3),
        "head": Choice(("a", "b")),
    }
    first: dict[str, Scalar] = {"rate": 1.0, "samples": 3, "head": "b"}
    result = grid_of(Grid(5), space, first)
    assert result[0] == (1.0, 3, "b")
    assert len(result) == len(set(result)) == 5 * 3 * 2
    assert [rate for rate, *_ in result[1::6]] == pytest.approx(
        [0.01, 0.01 * 10**0.5, 0.1, 0.1 * 10**0.5, 1.0]
    )
    assert len(grid_of(Grid({"rate": 2, "samples": (2,), "head": ("a",)}), space, first)) == 1 + 2
    in_another_order = dict(reversed(first.items()))
    assert grid_of(Grid(5), space, in_another_order) == result


def test_of_a_grid_what_is_not_active_makes_no_points() -> None:
    space: dict[str, Dimension] = {
        "samples": Choice((None, 1)),
        "epsilon": Float(0.1, 1, when={"samples": (1,)}),
    }
    assert Grid(3).combinations(space, {"samples": None}) == [
        {"samples": None},
        *({"samples": 1, "epsilon": pytest.approx(value)} for value in (0.1, 0.55, 1.0)),
    ]


def test_what_a_grid_leaves_of_the_budget_is_drawn_at_random() -> None:
    grid = Grid({"learning_rate": 2, "margin": (0.5, 2.0), "samples": (10,), "mode": ("a",)})
    points = grid.combinations(LOSS.space, LOSS.first)
    result = [suggest("a", LOSS, Protocol(grid), number, []) for number in range(8)]
    assert result[:5] == points
    assert result[5:] == [suggest("a", LOSS, Protocol(Random()), number, []) for number in range(5, 8)]


def test_points_of_other_papers_follow_the_first() -> None:
    points = [{**LOSS.first, "margin": margin} for margin in (0.0, 2.0)]
    loss = replace(LOSS, then=points)
    result = [suggest("a", loss, Protocol(TPE(random=4)), number, []) for number in range(5)]
    assert result[:3] == [LOSS.first, *points]
    assert result[3:] == [suggest("a", LOSS, Protocol(TPE(random=4)), number, []) for number in (3, 4)]
    assert "then" not in canonical_json(LOSS, defaults=False), (
        "a loss without them has the identity that it had"
    )
    with pytest.raises(UserError, match=r"then\[1\]\['margin'\] must lie in"):
        replace(LOSS, then=[points[0], {**points[0], "margin": 3.0}])
    with pytest.raises(UserError, match="a Grid lists its points itself"):
        check_sampler(replace(an_arm(Grid(2)), loss=loss), 99)


def test_a_sampler_of_optuna_may_be_given_as_its_class() -> None:
    given = OptunaSampler(optuna.samplers.NSGAIISampler, {"population_size": 4})  # type: ignore[arg-type]
    assert given == SAMPLERS["NSGA-II"]
    assert OptunaSampler(Wandering).reference == f"{__name__}:Wandering"  # type: ignore[arg-type]


def an_arm(sampler: Sampler) -> Arm:
    loss = Loss("cross_entropy", {"temperature": Float(0.1, 10, log=True)}, {"temperature": 0.1})
    return small_study(loss, protocol=Protocol(sampler)).arms[0]


def returns_none() -> None: ...


class NeedsAPackage(optuna.samplers.RandomSampler):
    """A sampler that imports a package that is not installed when it first chooses, as some of Optuna's do."""

    def sample_relative(self, study: Any, trial: Any, search_space: Any) -> dict[str, Any]:
        raise ModuleNotFoundError("No module named 'cmaes'")


def needs_a_package() -> NeedsAPackage:
    return NeedsAPackage()


@pytest.mark.parametrize(
    ("sampler", "named"),
    [
        (Grid(17), "17 points"),
        (Grid({"temprature": 3}), "'temprature'"),
        (Grid({}), "Grid.points"),
        (Grid({"temperature": (1, 20)}), "Grid.points['temperature']"),
        (OptunaSampler("no_such:make"), "'no_such:make'"),
        (OptunaSampler("TPSampler"), "'TPESampler'"),
        (OptunaSampler("optuna.samplers:TPSampler"), "'TPESampler'"),
        (OptunaSampler("TPESampler", {"candidates": 2}), "'candidates'"),
        (OptunaSampler(f"{__name__}:returns_none"), "NoneType"),
        (OptunaSampler(f"{__name__}:needs_a_package"), "'cmaes'"),
        (OptunaSampler(f"{__name__}:needs_a_package", random=20), "'cmaes'"),
    ],
)
def test_samplers_that_do_not_fit_are_reported_before_anything_starts(sampler: Sampler, named: str) -> None:
    with pytest.raises(UserError) as caught:
        check_sampler(an_arm(sampler), 16)
    assert named in str(caught.value) and "r/mlp/cross_entropy" in str(caught.value)
    assert "\n" not in str(caught.value)
