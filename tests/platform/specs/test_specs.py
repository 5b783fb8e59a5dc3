from __future__ import annotations

import copy
import dataclasses
import math
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topk_platform import (
    Arm,
    Choice,
    Float,
    Int,
    LabelNoise,
    LongTail,
    Loss,
    Model,
    Numerics,
    OptunaSampler,
    Protocol,
    Published,
    Quantile,
    Recipe,
    Regime,
    Study,
    TrainFraction,
    UserError,
    grid,
)
from topk_platform.specs import EpochRecord, Scalar, Trial, TrialRecord
from topk_platform.specs.codec import canonical_json, decode, digest, encode
from topk_platform.versions import version_of


def an_arm(**changes: object) -> Arm:
    loss = Loss(
        "smooth_topk_svm",
        {"learning_rate": Float(0.01, 1, log=True), "tau": Float(0.1, 10, log=True)},
        {"learning_rate": 0.1, "tau": 1},
    )
    arm = Arm(
        Regime("noisy", "digits", (LabelNoise(0.4), LongTail(5), TrainFraction(0.5))),
        Model("mlp"),
        loss,
        3,
        Recipe(epochs=4),
    )
    return dataclasses.replace(arm, **changes)  # type: ignore[arg-type]


def printed(**changes: object) -> Published:
    fields: dict[str, object] = {
        "regime": "noisy", "loss": "smooth_topk_svm", "metric": "top3", "value": 94.3, "source": "berrada2018, Table 1",
    }  # fmt: skip
    return Published(**{**fields, **changes})  # type: ignore[arg-type]


def a_study_with(*published: Published, models: tuple[str, ...] = ("mlp",)) -> Study:
    arms = [an_arm(model=Model("mlp", label=label)) for label in models]
    return Study("s", arms, topk=(3,), published=published)


def a_trial(**changes: object) -> Trial:
    fields: dict[str, object] = {
        "study": "s",
        "arm_id": "a",
        "arm": an_arm(),
        "topk": (1, 3),
        "phase": "search",
        "number": 2,
        "seed": 0,
        "root": 0,
        "values": {"learning_rate": 0.3, "tau": 0.31},
        "dataset_fingerprint": "f",
        "code_version": "c",
        "stop_below": ((1, 0.25), (2, 0.5)),
    }
    return Trial(**{**fields, **changes})  # type: ignore[arg-type]


def a_function() -> None: ...


def a_study(*arms: Arm, **fields: Any) -> Study:
    return Study("s", arms or [an_arm()], **{"topk": (3,), **fields})


def searched(times: int, **changes: Any) -> Arm:
    return an_arm(protocol=Protocol(searches=times), **changes)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Float(1, 1), "low < high"),
        (lambda: Float(0, 1, log=True), "low > 0"),
        (lambda: Float(float("nan"), 1), "Float.low"),
        (lambda: Int(0.5, 3), "Int.low"),
        (lambda: Choice((1, 1)), "Choice"),
        (lambda: Choice({"adam", "sgd"}), "Choice.options"),
        (lambda: LabelNoise(1.5), "probability"),
        (lambda: LongTail(0.5), "ratio"),
        (lambda: TrainFraction(0), "fraction"),
        (lambda: Recipe(epochs=0), "Recipe.epochs"),
        (lambda: Protocol(searches=0), "Protocol.searches"),
        (lambda: Protocol(width=0), "Protocol.width"),
        (lambda: an_arm(k=0), "Arm.k"),
        (lambda: a_study(trials=0), "Study.trials"),
        (lambda: a_study(seeds=0), "Study.seeds"),
        (lambda: Recipe(epochs=True), "Recipe.epochs"),
        (lambda: Recipe(1, optimizer="lion"), "optimizer"),
        (lambda: Recipe(1, learning_rate=math.nan), "Recipe.learning_rate"),
        (lambda: Recipe(1, learning_rate=10**400), "Recipe.learning_rate"),
        (lambda: Recipe(1, momentum=5), "Recipe.momentum"),
        (lambda: Recipe(1, clip_norm=0), "Recipe.clip_norm"),
        (lambda: Recipe(1, keep="top1"), "Recipe.keep"),
        (lambda: Numerics(bfloat16="yes"), "Numerics.bfloat16"),
        (lambda: Quantile(rungs=(1.0,)), "Quantile.rungs"),
        (lambda: Regime("../x", "digits"), "regime name"),
        (lambda: Model("mlp", {"hidden": [3]}), "Model.options['hidden']"),
        (lambda: Loss("ldam", head="round"), "head"),
        (lambda: Loss("ldam", {"scale": (0.1, 1)}, {"scale": 1}), "Loss.space['scale']"),
        (lambda: Loss("ldam", {"scale": Float(1, 2)}), "first must give one value"),
        (lambda: Loss("ldam", {"scale": Float(1, 2)}, {"scale": 3}), "must lie in"),
        (lambda: Loss("ldam", {"scale": Float(1, 2)}, {"scale": 1}, {"scale": 1}), "both in space and fixed"),
        (lambda: Loss("focal", fixed={"gamma": a_function}), "gamma"),
        (lambda: Regime("r", [["a line\n"] * 99] * 99), "Regime.dataset"),
        (lambda: grid("digits", [], [], k=1, recipe=Recipe(1)), "regimes must be a list"),
        (lambda: a_study(searched(2), trials=9), "trials must be a multiple of the 2 searches"),
        (lambda: a_study(searched(2), trials=8, seeds=5), "seeds must be a multiple of the 2 searches"),
        (
            lambda: a_study(an_arm(), searched(2, model=Model("m")), trials=8, seeds=4),
            "searches=2 in noisy/m/",
        ),
        (lambda: a_study(an_arm(loss=Loss("x"))).with_budget(searches=2), "searches must be left out"),
        (lambda: a_study(an_arm(k=20, metric=""), topk=(1, 3)), "take topk=(1, 3, 20)"),
        (lambda: a_study(an_arm(metric="top7"), topk=(1, 3)), "take topk=(1, 3, 7)"),
        (lambda: a_study(topk=(1, 5)), "take topk=(1, 3, 5)"),
        (lambda: a_study(topk=3), "Study.topk"),
        (lambda: a_study(topk=(3, 0)), "Study.topk[1]"),
        (lambda: a_study("arm"), "Study.arms[0]"),
        (lambda: Study("..", [an_arm()], topk=(3,)), "study name"),
        (lambda: Study("s", []), "at least one arm"),
        (lambda: a_study(an_arm(), an_arm()), "two arms"),
        (lambda: a_study(an_arm(model=Model("lab:net", {"type": "wide"}))), "'type'"),
        (lambda: a_study(an_arm(protocol=Protocol(OptunaSampler("a:b", {"type": 1})))), "'type'"),
        (lambda: a_study(targets=(0.9, 0.99, 0.99)), "targets"),
        (lambda: a_study(device="mps"), "Study.device"),
        (lambda: a_study(show=("top9",)), "top9"),
        (lambda: a_study().only("nothing*"), "'nothing*'"),
        (lambda: a_study(baseline="crossentropy"), "baseline"),
        (lambda: a_study(accelerator="A100"), "accelerator"),
        *((lambda g=g: a_study(gpus=g, device="cuda"), "gpus") for g in (0, 1.5, "all")),
        (lambda: a_study(time_limit=math.inf), "time_limit"),
        (lambda: printed(value=0.943e3), "Published.value"),
        (lambda: printed(source=""), "Published.source"),
        (lambda: a_study_with(printed(regime="noise")), "noise/smooth_topk_svm belongs to no arm"),
        (lambda: a_study_with(printed(metric="top4")), "'top4'"),
        (lambda: a_study_with(printed(metric="candidates99")), "'candidates99'"),
        (lambda: a_study_with(printed(), printed(value=1)), "two published numbers"),
        (lambda: a_study_with(printed(), models=("mlp", "wide")), "several arms"),
    ],
)
def test_bad_specs_are_refused_in_one_short_line_that_names_what_is_wrong(make: Any, named: str) -> None:
    with pytest.raises(UserError) as caught:
        make()
    assert named in str(caught.value)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


def test_whole_and_real_first_values_are_one_value() -> None:
    space = {"tau": Float(0.1, 10)}
    one, other = Loss("smooth_topk_svm", space, {"tau": 1}), Loss("smooth_topk_svm", space, {"tau": 1.0})
    assert digest(one) == digest(other)


def test_a_field_that_a_spec_gets_later_changes_no_hash_at_its_default() -> None:
    """Nor may it be lost where it has another value."""

    def of(*fields: Any, **values: Any) -> str:
        return digest((dataclasses.make_dataclass("Spec", fields, frozen=True)(**values), 1))

    before = [("epochs", int), ("rate", float, 0.1)]
    later = ("options", dict, dataclasses.field(default_factory=dict))
    assert of(*before, epochs=2) == of(*before, later, epochs=2) == of(before[0], epochs=2)
    assert len({of(*before, later, epochs=2, options=o) for o in ({}, {"a": 0})}) == 2
    assert of(*before, epochs=2) != of(*before, epochs=2, rate=0.2)


def test_an_option_may_be_given_by_an_equal_value_but_is_itself_what_trials_get() -> None:
    for value in (1.0, True):
        assert repr(Loss("x", {"samples": Choice((1, 2))}, {"samples": value}).first) == "{'samples': 1}"


def test_a_spec_does_not_change_with_what_it_was_made_of() -> None:
    options: dict[str, Scalar] = {}
    regimes = [Regime(f"r{scale}", "lab:data", options=options | {"scale": scale}) for scale in (1, 2)]
    for scale in (1, 2):
        options["scale"] = scale
        regimes.append(Regime(f"r{scale}", "lab:data", options=options))
    assert regimes[:2] == regimes[2:]
    read_only = Model("mlp", MappingProxyType({"width": 8}))
    assert copy.deepcopy(read_only) == Model("mlp", {"width": 8})


@pytest.mark.parametrize(
    "change",
    [
        {"number": 3},
        {"seed": 1},
        {"phase": "confirm"},
        {"values": {"learning_rate": 0.3, "tau": 0.32}},
        {"threads": 2},
        {"device": "cuda"},
        {"code_version": "d"},
        {"dataset_fingerprint": "g"},
        {"stop_below": ()},
        {"arm": an_arm(recipe=Recipe(epochs=5))},
        {"arm": an_arm(model=Model("mlp", {"hidden": 64}))},
        {"arm": an_arm(regime=Regime("noisy", "digits", (LabelNoise(0.5), LongTail(5))))},
        {"root": 1},
        {"study": "t"},
    ],
)
def test_whatever_determines_the_result_changes_the_key(change: dict[str, object]) -> None:
    assert a_trial(**change).key != a_trial().key


def test_the_budget_does_not_change_an_arms_identity_but_its_space_does() -> None:
    study = Study("s", [an_arm()], topk=(1, 3), trials=4, seeds=2)
    more = dataclasses.replace(study, trials=40, seeds=20)
    other = dataclasses.replace(study, seed=1)
    assert study.arm_id(study.arms[0]) == more.arm_id(more.arms[0])
    assert study.arm_id(study.arms[0]) != other.arm_id(other.arms[0])
    assert study.arm_id(an_arm()) != study.arm_id(an_arm(protocol=Protocol(width=2)))


@pytest.mark.parametrize(
    "more",
    [
        {"time_limit": 0.5},
        {"time_limit": 48},
        {"start_limit": 2},
        {"gpus": 0.25},
        {"accelerator": "A100"},
        {"published": [printed(spread=0.1, runs=3)]},
    ],
)
def test_what_changes_no_result_is_part_of_no_identity(more: dict[str, Any]) -> None:
    """What has ended under one limit or on one kind of GPU stays under another."""
    plain, other = (a_study(topk=(1, 3), device="cuda", **fields) for fields in ({}, more))
    assert plain.arm_id(plain.arms[0]) == other.arm_id(other.arms[0])
    assert version_of(plain.arms[0]) == version_of(other.arms[0])
    assert (plain.size, plain.metrics, plain.show) == (other.size, other.metrics, other.show)
    assert Study.from_json(other.to_json()) == other
    assert not more.keys() & {field.name for field in dataclasses.fields(Trial)}


def test_a_record_survives_json() -> None:
    record = TrialRecord(
        a_trial(),
        "completed",
        "",
        {"top1": 0.5},
        {"top1": 0.25},
        (EpochRecord(1, 0.1, {"top1": 0.5}, 0.2, 0.3),),
        artifacts={"ranks": "ab"},
        missing={"network": "full"},
    )
    assert TrialRecord.from_json(record.to_json()) == record


def test_decoding_refuses_what_it_does_not_know() -> None:
    with pytest.raises(ValueError, match="no spec is called 'Evil'"):
        decode({"type": "Evil"}, [Float])
    with pytest.raises(ValueError, match="Float cannot be made"):
        decode({"type": "Float", "lo": 1}, [Float])
    with pytest.raises(ValueError, match="not a trial"):
        Trial.from_json("{}")
    with pytest.raises(ValueError, match="not a study"):
        Study.from_json('{"a": 1}')
    with pytest.raises(TypeError, match="scalars"):
        encode({1, 2})
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical_json(float("nan"))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_trial_survives_json_with_every_bit_of_its_floats(value: float) -> None:
    trial = a_trial(values={"tau": value})
    back = Trial.from_json(trial.to_json())
    assert back == trial and back.key == trial.key
    assert back.values["tau"].hex() == value.hex()  # type: ignore[union-attr]


def test_arms_that_differ_in_k_alone_have_it_in_the_labels_of_all_but_the_first() -> None:
    parts = [Regime("r", "digits")], [Model("linear")], [Loss("cross_entropy"), Loss("topk_hinge")]
    arms = [arm for k in (3, 5) for arm in grid(*parts, k=k, recipe=Recipe(1))]
    study = Study("s", arms, topk=(3, 5))
    labels = ["cross_entropy", "topk_hinge", "cross_entropy-k5", "topk_hinge-k5"]
    assert [arm.loss.label for arm in study.arms] == labels and study.baseline == "cross_entropy"
    assert [arm.metric for arm in study.arms] == ["top3", "top3", "top5", "top5"]
    assert study.only("*k5").arms == study.arms[2:]
    with pytest.raises(UserError, match="two arms are called"):
        Study("s", [arms[0], dataclasses.replace(arms[2], recipe=Recipe(2))], topk=(3, 5))


def test_a_metric_is_shown_once() -> None:
    assert Study("s", [an_arm()], topk=(1, 3), show=("top3", "top1", "top3")).show == ("top3", "top1")


def a_study_of_three_losses() -> Study:
    losses = [Loss(name) for name in ("cross_entropy", "ldam", "focal")]
    return a_study(*grid([Regime("a", "digits")], [Model("mlp")], losses, k=3, recipe=Recipe(1)))


def test_grid_is_the_product_in_order() -> None:
    regimes, models = (
        [Regime("a", "digits"), Regime("b", "digits")],
        [Model("mlp"), Model("mlp", label="wide")],
    )
    arms = grid(regimes, models, [Loss("ldam")], k=2, recipe=Recipe(epochs=1))
    assert [arm.name for arm in arms] == ["a/mlp/ldam", "a/wide/ldam", "b/mlp/ldam", "b/wide/ldam"]
    assert arms[0].metric == "top2"


def test_several_globs_keep_the_arms_that_any_of_them_names_in_the_studys_order() -> None:
    study = a_study_of_three_losses()
    result = study.only(["*/focal", "*/cross*", "*/cross*"])
    assert [arm.loss.label for arm in result.arms] == ["cross_entropy", "focal"]
    assert study.only("*/ldam").arms == study.arms[1:2]


def test_the_baseline_is_cross_entropy_where_there_is_one_and_else_none() -> None:
    study = a_study_of_three_losses()
    assert study.baseline == "cross_entropy"
    assert study.only(["*/ldam", "*/focal"]).baseline is None
    ldam = dataclasses.replace(study, baseline="ldam")
    assert (ldam.baseline, ldam.only("*/[lf]*").baseline, ldam.smoke().baseline) == ("ldam",) * 3


def test_published_numbers_go_with_their_arms_and_none_is_left_to_a_smoke_run() -> None:
    numbers = (printed(model="mlp"), printed(model="wide", value=90.0))
    study = a_study_with(*numbers, models=("mlp", "wide"))
    assert [study.published_of(arm, "top3") for arm in study.arms] == list(numbers)
    assert study.published_of(study.arms[0], "macro_top3") is None
    assert study.only("*/wide/*").published == numbers[1:]
    assert study.smoke().published == ()
    assert dataclasses.replace(study, seeds=2).published == numbers
