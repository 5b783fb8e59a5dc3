from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topk_platform import (
    Arm,
    Choice,
    CmaEs,
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
from topk_platform.code_version import code_version
from topk_platform.specs import EpochRecord, Scalar, Trial, TrialRecord
from topk_platform.specs.codec import canonical_json, decode, digest, encode


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


def in_a_ring(*pairs: tuple[str, str]) -> Study:
    """Arms by regime, each starting from another regime's; one of them searches nothing."""
    loss = Loss("x", {"tau": Float(0.1, 1)}, {"tau": 0.5})
    arms = [
        an_arm(regime=Regime(name, "digits"), loss=loss, protocol=Protocol(start_from=f"{other}/*/*"))
        for name, other in pairs
    ]
    return Study("s", [*arms, an_arm(regime=Regime("fixed", "digits"), loss=Loss("x"))], topk=(3,))


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


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Float(2, 1), "low < high"),
        (lambda: Float(1, 1), "low < high"),
        (lambda: Float(0, 1, log=True), "low > 0"),
        (lambda: Float(float("nan"), 1), "Float.low must be a finite number, got nan"),
        (lambda: Int(5, 4), "low < high"),
        (lambda: Int(0, 4, log=True), "low > 0"),
        (lambda: Choice(()), "at least one option"),
        (lambda: Choice((1, 1)), "only once"),
        (lambda: LabelNoise(1.5), "probability"),
        (lambda: LongTail(0.5), "ratio"),
        (lambda: TrainFraction(0), "fraction"),
        (lambda: TrainFraction(1.1), "fraction"),
        (lambda: Recipe(epochs=0), "epochs"),
        (lambda: Recipe(epochs=1, optimizer="lion"), "optimizer"),
        (lambda: Recipe(epochs=1, schedule="step"), "schedule"),
        (lambda: Recipe(epochs=2.5), "Recipe.epochs must be a whole number, got 2.5"),
        (lambda: Recipe(epochs=True), "Recipe.epochs must be a whole number, got True"),
        (lambda: Recipe(epochs="3"), "Recipe.epochs must be a whole number, got '3'"),
        (lambda: Recipe(1, batch_size=32.5), "Recipe.batch_size must be a whole number, got 32.5"),
        (lambda: Recipe(1, learning_rate=math.nan), "Recipe.learning_rate must be a finite number, got nan"),
        (lambda: Recipe(1, learning_rate=-1), "Recipe.learning_rate must be at least 0, got -1"),
        (lambda: Recipe(1, weight_decay=-1), "Recipe.weight_decay must be at least 0, got -1"),
        (lambda: Recipe(1, momentum=5), r"Recipe.momentum must be in \[0, 1\), got 5"),
        (
            lambda: Recipe(1, clip_norm="x"),
            "Recipe.clip_norm must be a finite number or None|above 0 or None",
        ),
        (lambda: Recipe(1, clip_norm=0), "Recipe.clip_norm must be above 0 or None, got 0"),
        (lambda: Recipe(1, keep="top1"), "Recipe.keep must be a sequence, each a string, got 'top1'"),
        (lambda: Numerics(bfloat16="yes"), "Numerics.bfloat16 must be True or False, got 'yes'"),
        (
            lambda: Study("s", [an_arm()], topk=(3,), trials="3"),
            "Study.trials must be a whole number, got '3'",
        ),
        (
            lambda: Study("s", [an_arm()], topk=(3,), trials=2.5),
            "Study.trials must be a whole number, got 2.5",
        ),
        (lambda: Study("s", [an_arm()], topk=(3,), seeds=1.5), "Study.seeds must be a whole number, got 1.5"),
        (
            lambda: Study("s", [an_arm(protocol=Protocol(searches=2))], topk=(3,), trials=9),
            "study s: trials must be a multiple of the 2 searches of its arms, which share them, got 9",
        ),
        (
            lambda: Study("s", [an_arm(protocol=Protocol(searches=2))], topk=(3,), trials=8, seeds=5),
            "study s: seeds must be a multiple of the 2 searches of its arms, which share them, got 5",
        ),
        (
            lambda: Study(
                "s",
                [an_arm(), an_arm(model=Model("mlp", label="m"), protocol=Protocol(searches=2))],
                topk=(3,),
                trials=8,
                seeds=4,
            ),
            "study s: all arms must be searched equally often, .* got searches=1 in noisy/mlp/.*, searches=2 in ",
        ),
        (
            lambda: Study("s", [an_arm(loss=Loss("x"))], topk=(3,)).with_budget(searches=2),
            "study s: searches must be left out, because none of its arms is searched, got 2",
        ),
        (
            lambda: an_arm(metric="top1", metrics=("top3", "top1")),
            r"arm noisy/mlp/smooth_topk_svm: metric must be the first of metrics \['top3', 'top1'\], got 'top1'",
        ),
        (
            lambda: an_arm(metric="", metrics=("top3", "top3")),
            r"arm noisy/.*: metrics must each be named once, got \['top3', 'top3'\]",
        ),
        (
            lambda: an_arm(metric="", metrics=("top3", "top1"), protocol=Protocol(CmaEs())),
            r"arm noisy/.*: its sampler searches by 1 metric at most, got \['top3', 'top1'\]",
        ),
        (
            lambda: Study("s", [an_arm(metric="", metrics=("top3", "top7"))], topk=(1, 3)),
            r"study s: topk must contain 7, for metric 'top7', got \(1, 3\): take topk=\(1, 3, 7\)",
        ),
        (
            lambda: Study("s", [an_arm(k=20, metric="")], topk=(1, 3)),
            r"study s: topk must contain 20, which is the k of arm noisy/.*, got \(1, 3\): take topk=\(1, 3, 20\)",
        ),
        (lambda: Study("s", [an_arm()], topk=(3,), front=0), "Study.front must be at least 1, got 0"),
        (
            lambda: Protocol(start_from="noisy/mlp"),
            "Protocol.start_from must be regime/model/loss, got 'noisy/mlp'",
        ),
        (
            lambda: Study("s", [an_arm(protocol=Protocol(start_from="*/*/ldam"))], topk=(3,)),
            r"study s: arm noisy/mlp/smooth_topk_svm cannot start from 'noisy/mlp/ldam'; arms: \['noisy/.*'\]",
        ),
        (
            lambda: Study(
                "s", [an_arm(protocol=Protocol(start_from="noisy/mlp/smooth_topk_svm"))], topk=(3,)
            ),
            "study s: arm .* cannot start from 'noisy/mlp/.*', which waits for it: noisy/.* -> noisy/.*",
        ),
        (
            lambda: in_a_ring(("a", "b"), ("b", "a")),
            "'a/mlp/x', which waits for it: .* -> a/mlp/x -> b/mlp/x|'b/mlp/x'",
        ),
        (
            lambda: in_a_ring(("a", "fixed"), ("b", "a")),
            "study s: arm a/mlp/x cannot start from 'fixed/mlp/x', which searches nothing",
        ),
        (lambda: Protocol(searches=0), "Protocol.searches must be at least 1, got 0"),
        (
            lambda: Study("s", [an_arm()], topk=3),
            "Study.topk must be a sequence, each a whole number .*, got 3",
        ),
        (lambda: Study("s", [an_arm()], topk=(3, 0)), r"Study.topk\[1\] must be at least 1, got 0"),
        (lambda: Study("s", ["arm"], topk=(3,)), r"Study.arms\[0\] must be an Arm, got 'arm'"),
        (
            lambda: Loss("ldam", {"scale": (0.1, 1)}, {"scale": 1}),
            r"Loss.space\['scale'\] must be a Float or an Int or a Choice, got \(0.1, 1\)",
        ),
        (lambda: Model("mlp", {"hidden": [3]}), r"Model.options\['hidden'\] must be .* got \[3\]"),
        (lambda: Int(0.5, 3), "Int.low must be a whole number, got 0.5"),
        (lambda: Quantile(rungs=(1.0,)), "rungs"),
        (lambda: Quantile(quantile=2), "quantile"),
        (lambda: Protocol(width=0), "width"),
        (lambda: Regime("../x", "digits"), "regime name"),
        (lambda: Loss("ldam", head="round"), "head"),
        (lambda: Loss("ldam", {"scale": Float(1, 2)}), "first must give one value"),
        (lambda: Loss("ldam", {"scale": Float(1, 2)}, {"scale": 3}), "must lie in"),
        (lambda: Loss("ldam", {"scale": Float(1, 2)}, {"scale": 1}, {"scale": 1}), "both in space and fixed"),
        (lambda: an_arm(k=0), "Arm.k"),
        (lambda: Study("a/b", [an_arm()], topk=(3,)), "study name"),
        (lambda: Study("..", [an_arm()], topk=(3,)), "study name"),
        (lambda: Study("s", []), "at least one arm"),
        (lambda: Study("s", [an_arm(), an_arm()], topk=(3,)), "two arms"),
        (
            lambda: Study("s", [an_arm(model=Model("lab:net", {"type": "wide"}))], topk=(3,)),
            "called 'type'.*net",
        ),
        (
            lambda: Study("s", [an_arm(regime=Regime("r", "lab:data", options={"type": 1}))], topk=(3,)),
            "'type'",
        ),
        (
            lambda: Study("s", [an_arm(protocol=Protocol(OptunaSampler("a:b", {"type": 1})))], topk=(3,)),
            "a sampler must not be called 'type'",
        ),
        (lambda: Choice({"adam", "sgd"}), r"Choice.options must be a sequence, .*, got \{"),  # type: ignore[arg-type]
        (
            lambda: Recipe(1, learning_rate=10**400),
            "Recipe.learning_rate must be a finite number, got 1000",
        ),
        (
            lambda: grid([], [], [], k=1, recipe=Recipe(1), metrics="top1"),
            "metrics must be a list, got 'top1'",
        ),
        (
            lambda: Study("s", [an_arm()], topk=(1, 5)),
            r"topk must contain 3, which is the k of arm noisy/.*, got \(1, 5\): take topk=\(1, 3, 5\)",
        ),
        (lambda: Study("s", [an_arm()], topk=(3,), trials=0), "trials"),
        (
            lambda: Study("s", [an_arm()], topk=(3,), targets=(0.9, 0.99, 0.99)),
            "targets must differ in the six digits of their metrics",
        ),
        (lambda: Study("s", [an_arm()], topk=(3,), seeds=0), "seeds"),
        (
            lambda: Study("s", [an_arm()], topk=(3,), device="mps"),
            r"Study.device must be one of .*Apple.s mps has no float64.*, got .mps.",
        ),
        (lambda: Study("s", [an_arm()], topk=(3,), show=("top9",)), "top9"),
        (lambda: Study("s", [an_arm()], topk=(3,)).only("nothing*"), "matches no arm"),
        (lambda: Study("s", [an_arm()], topk=(3,)).only(["*", "nothing*"]), r"'nothing\*' matches no arm"),
        (
            lambda: Study("s", [an_arm()], topk=(3,), baseline="crossentropy"),
            "baseline must be .* got 'crossentropy'",
        ),
        (lambda: printed(value=0.943e3), r"value must be a percentage in \[0, 100\]"),
        (lambda: printed(value=float("nan")), "value must be a finite number, got nan"),
        (lambda: printed(spread=-0.1), "spread"),
        (lambda: printed(runs=0), "runs"),
        (lambda: printed(split="train"), "split"),
        (lambda: printed(source=""), "source"),
        (lambda: a_study_with(printed(regime="noise")), "noise/smooth_topk_svm belongs to no arm"),
        (lambda: a_study_with(printed(model="wide")), "noisy/wide/smooth_topk_svm belongs to no arm"),
        (lambda: a_study_with(printed(metric="top4")), "metric 'top4' of a published number"),
        (lambda: a_study_with(printed(metric="candidates99")), "metric 'candidates99' of a published number"),
        (
            lambda: a_study_with(printed(), printed(value=1)),
            "two published numbers belong to noisy/mlp/smooth_topk_svm",
        ),
        (lambda: a_study_with(printed(), models=("mlp", "wide")), "several arms.*name its model"),
    ],
)
def test_bad_specs_are_refused_with_the_rule(make: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make()  # type: ignore[operator]


def test_whole_and_real_first_values_are_one_value() -> None:
    space = {"tau": Float(0.1, 10)}
    one, other = Loss("smooth_topk_svm", space, {"tau": 1}), Loss("smooth_topk_svm", space, {"tau": 1.0})
    assert digest(one) == digest(other)


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


def test_a_trial_survives_json() -> None:
    trial = a_trial()
    back = Trial.from_json(trial.to_json())
    assert back == trial
    assert back.key == trial.key


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


def test_how_long_a_trial_may_take_is_part_of_no_identity_nor_is_its_share_of_a_gpu() -> None:
    """Neither changes a result: what has ended under one limit stays under another."""
    arm = an_arm()
    studies = [
        Study("s", [arm], topk=(1, 3), **more)  # type: ignore[arg-type]
        for more in (
            {},
            {"time_limit": 0.5},
            {"time_limit": 48},
            {"start_limit": 2},
            {"gpus": 0.25},
        )
    ]
    assert len({study.arm_id(arm) for study in studies}) == 1
    assert "time_limit" not in {field.name for field in dataclasses.fields(Trial)}


@pytest.mark.parametrize("gpus", [0, -1, 1.5, 2, 4, "auto"])
def test_a_trial_trains_on_one_gpu_or_a_part_of_it(gpus: object) -> None:
    with pytest.raises(UserError, match=f"gpus must be .*, got {gpus!r}"):
        Study("s", [an_arm()], topk=(1, 3), device="cuda", gpus=gpus)


def test_a_kind_of_gpu_is_of_a_study_on_gpus_and_part_of_no_identity() -> None:
    arm = an_arm()
    plain, pinned = (Study("s", [arm], topk=(1, 3), device="cuda", accelerator=kind) for kind in ("", "A100"))
    assert plain.arm_id(arm) == pinned.arm_id(arm)
    assert "accelerator" not in plain.to_json() and Study.from_json(pinned.to_json()) == pinned
    with pytest.raises(
        UserError, match="accelerator must be left out where trials run on the CPU, got 'A100'"
    ):
        Study("s", [arm], topk=(1, 3), accelerator="A100")
    with pytest.raises(UserError, match="accelerator must be a kind of GPU such as 'A100', got 'a b'"):
        Study("s", [arm], topk=(1, 3), device="cuda", accelerator="a b")


@pytest.mark.parametrize("limit", ["time_limit", "start_limit"])
@pytest.mark.parametrize("hours", [0, -1, math.inf])
def test_a_limit_is_some_hours(limit: str, hours: float) -> None:
    with pytest.raises(UserError, match=f"{limit} must be"):
        Study("s", [an_arm()], topk=(1, 3), **{limit: hours})  # type: ignore[arg-type]


def test_a_record_survives_json() -> None:
    record = TrialRecord(
        a_trial(),
        "completed",
        "",
        {"top1": 0.5},
        {"top1": 0.25},
        (EpochRecord(1, 0.1, {"top1": 0.5}, 0.2, 0.3),),
    )
    assert TrialRecord.from_json(record.to_json()) == record


def test_decoding_refuses_what_it_does_not_know() -> None:
    with pytest.raises(ValueError, match="no spec is called 'Evil'"):
        decode({"type": "Evil"}, [Float])
    with pytest.raises(ValueError, match="Float cannot be made"):
        decode({"type": "Float", "lo": 1}, [Float])
    with pytest.raises(ValueError, match="not a trial"):
        Trial.from_json("{}")
    with pytest.raises(TypeError, match="scalars"):
        encode({1, 2})
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical_json(float("nan"))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_keep_every_bit(value: float) -> None:
    trial = a_trial(values={"tau": value})
    assert Trial.from_json(trial.to_json()).values["tau"].hex() == value.hex()  # type: ignore[union-attr]


def test_smoke_shrinks_and_takes_its_own_name() -> None:
    small = Study("s", [an_arm()], topk=(1, 3)).smoke()
    assert (small.name, small.trials, small.seeds, small.arms[0].recipe.epochs) == ("s-smoke", 2, 2, 2)


def test_grid_is_the_product() -> None:
    regimes = [Regime("a", "digits"), Regime("b", "digits")]
    arms = grid(
        regimes, [Model("mlp"), Model("mlp", label="wide")], [Loss("ldam")], k=2, recipe=Recipe(epochs=1)
    )
    assert [arm.name for arm in arms] == ["a/mlp/ldam", "a/wide/ldam", "b/mlp/ldam", "b/wide/ldam"]
    assert arms[0].metric == "top2"


def test_a_metric_is_shown_once() -> None:
    assert Study("s", [an_arm()], topk=(1, 3), show=("top3", "top1", "top3")).show == ("top3", "top1")


def test_several_globs_keep_the_arms_that_any_of_them_names_in_the_studys_order() -> None:
    losses = [Loss(name) for name in ("cross_entropy", "ldam", "focal")]
    study = Study(
        "s", grid([Regime("a", "digits")], [Model("mlp")], losses, k=3, recipe=Recipe(1)), topk=(3,)
    )
    result = study.only(["*/focal", "*/cross*", "*/cross*"])
    assert [arm.loss.label for arm in result.arms] == ["cross_entropy", "focal"]
    assert study.only("*/ldam").arms == study.arms[1:2]


def test_the_baseline_is_cross_entropy_where_there_is_one_and_else_none() -> None:
    losses = [Loss(name) for name in ("cross_entropy", "ldam", "focal")]
    study = Study(
        "s", grid([Regime("a", "digits")], [Model("mlp")], losses, k=3, recipe=Recipe(1)), topk=(3,)
    )
    assert study.baseline == "cross_entropy"
    assert study.only(["*/ldam", "*/focal"]).baseline is None
    ldam = dataclasses.replace(study, baseline="ldam")
    assert (ldam.baseline, ldam.only("*/[lf]*").baseline, ldam.smoke().baseline) == ("ldam",) * 3


def test_published_numbers_determine_no_result() -> None:
    plain, printing = a_study_with(), a_study_with(printed(spread=0.1, runs=3))
    (arm,) = printing.arms
    assert printing.arm_id(arm) == plain.arm_id(arm) == plain.arm_id(plain.arms[0])
    assert a_trial(arm_id=printing.arm_id(arm)).key == a_trial(arm_id=plain.arm_id(arm)).key
    assert code_version(arm) == code_version(plain.arms[0])
    assert (printing.size, printing.metrics, printing.show) == (plain.size, plain.metrics, plain.show)


def test_published_numbers_go_with_their_arms_and_none_is_left_to_a_smoke_run() -> None:
    numbers = (printed(model="mlp"), printed(model="wide", value=90.0))
    study = a_study_with(*numbers, models=("mlp", "wide"))
    assert [study.published_of(arm, "top3") for arm in study.arms] == list(numbers)
    assert study.published_of(study.arms[0], "macro_top3") is None
    assert study.only("*/wide/*").published == numbers[1:]
    assert study.smoke().published == ()
    assert dataclasses.replace(study, seeds=2).published == numbers


def a_function() -> None: ...


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Loss("focal", fixed={"gamma": a_function}), "got <function a_function"),  # type: ignore[dict-item]
        (lambda: Regime("r", [["a line\n"] * 99] * 99), "got [['a line"),  # type: ignore[arg-type]
        (lambda: grid("digits", [], [], k=1, recipe=Recipe(1)), "regimes must be a list, got 'digits'"),  # type: ignore[arg-type]
        (
            lambda: grid([], Model("mlp"), [], k=1, recipe=Recipe(1)),
            "models must be a list, got Model(name='mlp'",
        ),  # type: ignore[arg-type]
    ],
)
def test_what_stands_in_the_wrong_place_is_reported_in_one_line(
    make: Callable[[], object], message: str
) -> None:
    with pytest.raises(UserError) as caught:
        make()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


def test_a_study_is_the_same_after_json() -> None:
    number = Published(regime="noisy", loss="smooth_topk_svm", metric="top1", value=50.0, source="me")
    study = Study("s", [an_arm()], topk=(1, 3), trials=2, seeds=3, published=[number])
    again = Study.from_json(study.to_json())
    assert [again.arm_id(arm) for arm in again.arms] == [study.arm_id(arm) for arm in study.arms]
    assert again.to_json() == study.to_json()
    with pytest.raises(ValueError, match="not a study"):
        Study.from_json('{"a": 1}')
