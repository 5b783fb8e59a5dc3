"""A recommendation says what near differences support: a loss, the baseline, or that it is not known."""

from __future__ import annotations

import io
import json
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from scipy import stats

from topk_platform import (
    Float,
    LabelNoise,
    LongTail,
    Loss,
    Model,
    PerClass,
    Protocol,
    Recipe,
    Regime,
    Study,
    UserError,
    grid,
)
from topk_platform import recommend as recommend_from_python
from topk_platform.cli import main
from topk_platform.cli.consoles import plain
from topk_platform.evidence.recommending import situation_of
from topk_platform.records import Tally
from topk_platform.reports.recommendation_text import (
    recommendation_data,
    recommendation_to_markdown,
    recommendation_to_rich,
    sentences,
)
from topk_platform.results import Cell, estimate
from topk_platform.results.comparisons import Compared, Situation, searched_pairs
from topk_platform.results.recommendation import NEAR, Recommendation, recommended
from topk_platform.results.replicates import Luck, luck_of

ASKED = Situation(100, 5_000, noise=0.1)
JITTER = (0.0, 0.004, -0.003, 0.002, -0.003)


def compared(loss: str, gain: float, what: Situation = ASKED, lost: int = 0, **changes: Any) -> Compared:
    """One loss so far ahead of the baseline, in points, with five seeds, one of each of five searches."""
    made = estimate([gain / 100 + j for j in JITTER])
    assert made is not None
    apart = replace(made, covers=changes.pop("covers", "searches and seeds"))
    cell = Cell(estimate([0.7 + j for j in JITTER]), apart, confirmed=Tally(5, diverged=lost))
    fields = {
        "study": "s", "regime": "r", "model": "mlp", "baseline": "cross_entropy", "metric": "top5",
        "theirs": Tally(5), "values": ({"tau": 0.31},), "searches": 5, "kind": "digits", **changes,
    }  # fmt: skip
    return Compared(loss=loss, situation=what, cell=cell, **fields)


def near_by(times: float) -> Situation:
    """A situation so many times apart from what is asked, in the number of images."""
    return replace(ASKED, images=round(ASKED.images * times))


def test_a_loss_that_is_better_where_it_is_nearest_is_recommended() -> None:
    result = recommended(
        ASKED, [compared("ldam", 3.0), compared("focal", 0.1), compared("ldam", 0.0, near_by(2), regime="r2")]
    )
    assert (result.verdict, result.loss) == ("better", "ldam")
    text = " ".join(sentences(result))
    begins = "Start with ldam (measured on digits with mlp, not pretrained)."
    assert text.startswith(f"{begins} Its values there, with model mlp: tau = 0.31.")
    assert (
        "it is 3.0 ± 0.4 points of top-5 accuracy ahead of cross_entropy (s: r/mlp/ldam; n = 5 seeds of 5 searches"
        in text
    )
    assert "Of 2 near comparisons of it, it is better in 1, undecided in 1, and worse in none." in text
    assert text.endswith("All this was measured on data other than yours.")


def test_kinds_of_data_and_networks_are_listed_with_one_and() -> None:
    near = [compared("ldam", 3.0, kind=kind, model=kind[0]) for kind in ("a", "b", "c")]
    assert "(measured on a, b and c with a, b and c, not pretrained)" in " ".join(
        sentences(recommended(ASKED, near))
    )


def test_a_recommendation_from_another_k_warns_of_it() -> None:
    warning = (
        "This is for K = 5, and you asked for K = 1: a loss that is ahead at one K may be behind at another."
    )
    one = recommended(replace(ASKED, k=1), [compared("ldam", 3.0)])
    assert one.loss == "ldam" and any(line.startswith(warning) for line in sentences(one))
    assert "you asked for" not in " ".join(sentences(recommended(ASKED, [compared("ldam", 3.0)])))


def test_of_several_the_nearest_then_the_largest_is_named_and_not_ranked() -> None:
    nearer = compared("focal", 2.0, near_by(1.5))
    result = recommended(ASKED, [compared("ldam", 4.0, near_by(3)), nearer])
    assert result.loss == "focal"
    assert (
        "Also better than their baseline in a near regime: ldam; they were not tested against focal"
        in sentences(result)[3]
    )
    assert recommended(ASKED, [compared("ldam", 4.0), compared("focal", 2.0)]).loss == "ldam"


def test_far_evidence_decides_nothing() -> None:
    result = recommended(ASKED, [compared("ldam", 3.0, near_by(10.5))])
    assert (result.verdict, result.loss, result.near) == ("unknown", "", ())
    (said,) = sentences(result)
    assert "nothing near was measured. The nearest regime, s: r (digits, mlp), is 10.5 times apart" in said
    assert "10.5 in images per class" in said
    assert recommended(ASKED, [compared("ldam", 3.0, near_by(9.5))]).verdict == "better"


def test_ratios_and_counts_of_thousands_are_written_in_full() -> None:
    large = Situation(1000, 1_281_000, imbalance=1500.0)
    (said,) = sentences(recommended(large, [compared("ldam", 3.0, near_by(0.02))]))
    assert (
        "57645000 times apart (1500 in imbalance × 1281 in images per class × 10 in classes × 3 in noise)"
        in said
    )
    rows = recommendation_to_markdown(recommended(large, [compared("ldam", 3.0, large)]))
    assert "1000 classes, 1281 images each, imbalance 1500, noise 0, K = 5" in rows


def test_without_any_evidence_it_says_so() -> None:
    result = recommended(ASKED, [], {"mine": "its definition is not known here"})
    assert sentences(result) == [
        "Not known: there is no study in which a loss and its baseline both have results."
    ]
    assert "Left out: mine: its definition is not known here." in recommendation_to_markdown(result)


def test_undecided_intervals_are_no_recommendation_and_no_equality() -> None:
    result = recommended(ASKED, [compared("ldam", 0.2), compared("focal", -3.0)])
    assert result.verdict == "unknown"
    text = " ".join(sentences(result))
    assert "not pretrained): of 2 near comparisons, 1 worse, 1 undecided" in text
    assert "intervals reach up to +0.6 points (s: r/mlp/ldam; 5 searches)" in text
    assert "Start with" not in text and "keep cross_entropy, the baseline, and tune it" in text


def test_the_baseline_is_recommended_where_all_others_are_worse() -> None:
    result = recommended(ASKED, [compared("ldam", -2.0), compared("focal", -3.0)])
    assert (result.verdict, result.loss) == ("baseline", "cross_entropy")
    text = " ".join(sentences(result))
    assert "Start with cross_entropy (measured on" in text and "Nothing is known about other losses." in text
    assert "3.0 ± 0.4 points of top-5 accuracy behind cross_entropy" in text
    two = [compared("ldam", -2.0), compared("focal", -3.0, baseline="another")]
    assert recommended(ASKED, two).verdict == "unknown"  # for nobody compared the two baselines


def test_a_loss_that_is_worse_somewhere_near_is_not_recommended() -> None:
    contradicted = compared("ldam", -3.0, near_by(2), regime="r2")
    result = recommended(ASKED, [compared("ldam", 3.0), contradicted])
    assert result.verdict == "unknown"
    assert sentences(result)[0].endswith(
        "1 better, 1 worse; no loss is better in its nearest regime without being worse in another near one."
    )


def test_all_models_of_the_nearest_regime_have_to_agree() -> None:
    both = [compared("ldam", 3.0), compared("ldam", 0.0, model="convnet")]
    assert recommended(ASKED, both).verdict == "unknown"
    assert recommended(ASKED, [both[0], compared("ldam", 3.0, model="convnet")]).loss == "ldam"


def test_lost_seeds_are_never_better() -> None:
    assert recommended(ASKED, [compared("ldam", 3.0, lost=1)]).verdict == "unknown"


def test_all_that_is_looked_at_is_corrected_for_whichever_study_it_is_of() -> None:
    """A p-value of 0.02 stands alone, and not among 20."""
    one = compared("ldam", 0.5)
    alone = recommended(ASKED, [one])
    assert alone.verdict == "better" and one.cell.difference is not None and one.cell.difference.p < 0.05
    others = [compared("focal", 0.0, study=f"s{i}") for i in range(20)]
    among = recommended(ASKED, [one, *others])
    assert among.verdict == "unknown"
    mine = next(c for c in among.near if c.loss == "ldam")
    assert mine.p_holm == pytest.approx(21 * one.cell.difference.p)


whats = st.builds(
    Situation,
    classes=st.integers(20, 5000),
    images=st.integers(5000, 10**6),
    imbalance=st.floats(1, 1000),
    noise=st.floats(0, 1),
    k=st.integers(1, 10),
)


@given(whats, whats, whats)
def test_the_distance_is_one_on_a_log_scale(a: Situation, b: Situation, c: Situation) -> None:
    assert a.apart(a) == 1 and a.apart(b) == pytest.approx(b.apart(a)) and a.apart(b) >= 1
    assert math.log(a.apart(c)) <= math.log(a.apart(b)) + math.log(b.apart(c)) + 1e-9


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([-3, 0, 3]), st.floats(1, 30)), max_size=6))
def test_no_more_is_said_than_is_shown(rows: list[tuple[str, int, float]]) -> None:
    """Whatever the evidence: who is recommended is better where it is nearest, is near, and is worse nowhere near."""
    made = [
        compared(loss, gain, near_by(times), regime=f"r{i}") for i, (loss, gain, times) in enumerate(rows)
    ]
    result = recommended(ASKED, made)
    assert sentences(result) and recommendation_data(result)["verdict"] == result.verdict
    assert all(one.apart <= NEAR for one in result.near)
    if result.verdict == "better":
        mine = [one for one in result.near if one.loss == result.loss]
        assert mine and mine[0].mark == "better" and mine[0].ahead.low > 0
        assert not any(one.ahead.high < 0 and one.mark for one in mine)
    if result.verdict == "baseline":
        assert result.near and not any(one.loss == result.loss for one in result.near)
        assert all(one.ahead.mean < 0 for one in result.near[:1])
    if result.verdict == "unknown":
        assert not result.loss and not any("Start with" in line for line in sentences(result))


@pytest.mark.parametrize("width", [80, 120])
def test_the_evidence_fits_into_a_terminal_with_whole_names_and_numbers(width: int) -> None:
    name = "noised_imbalanced_topk_hinge"
    result = recommended(
        ASKED, [compared(name, 3.0, study="letters_imbalance", regime="noise-0.4-images-150")]
    )
    file = io.StringIO()
    Console(file=file, width=width).print(recommendation_to_rich(result))
    lines = file.getvalue().splitlines()
    rows = [line for line in lines if line.startswith("│")]
    assert max(map(len, lines)) <= width and len(rows) == {80: 4, 120: 2}[width]
    for part in (
        name,
        "letters_imbalance:",
        "noise-0.4-images-150/",
        "+3.0 ± 0.4 ",
        "(5 searches)",
        "better │",
    ):
        assert any(part in row for row in rows), part


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": 1}, "classes must be at least 2"),
        ({"noise": 1.5}, r"noise must be in \[0, 1\]"),
        ({"imbalance": 0.5}, "imbalance must be at least 1"),
        ({"k": 100}, "k must be below the number of classes, got 100 of 100"),
        ({"images": 50}, "images must be at least the number of classes, got 50 of 100"),
    ],
)
def test_what_cannot_be_is_refused(changes: Mapping[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Situation(**{"classes": 100, "images": 5000, **changes})


def test_a_regime_is_what_its_conditions_leave_of_its_data() -> None:
    result = situation_of(Regime("few", "digits", (PerClass(20), LabelNoise(0.5), LabelNoise(0.2))), 3)
    assert result == Situation(10, 200, 1.0, 0.6, 3)
    tail = situation_of(Regime("tail", "digits", (LongTail(20),)), 3)
    assert 19 <= tail.imbalance <= 21 and tail.images < 700


FAIR, BAD = {"learning_rate": Float(0.05, 0.1)}, {"learning_rate": Float(1e-7, 1e-6)}


def a_study(name: str) -> Study:
    regimes = [Regime("few", "digits", (PerClass(20),))]
    losses = [Loss("cross_entropy", FAIR, {"learning_rate": 0.1}), Loss("ldam", BAD, {"learning_rate": 1e-6})]
    losses.append(Loss("ldam", label="ldam-papers"))
    arms = grid(regimes, [Model("linear")], losses, k=3, recipe=Recipe(3), protocol=Protocol(searches=3))
    return Study(name, arms, topk=(1, 3), trials=3, seeds=3)


LAB = """
from topk_platform import Float, Loss, Model, PerClass, Protocol, Recipe, Regime, Study, grid

FAIR, BAD = {"learning_rate": Float(0.05, 0.1)}, {"learning_rate": Float(1e-7, 1e-6)}
losses = [Loss("cross_entropy", FAIR, {"learning_rate": 0.1}), Loss("ldam", BAD, {"learning_rate": 1e-6})]
losses.append(Loss("ldam", label="ldam-papers"))
how = Protocol(searches=3)
regimes = [Regime("few", "digits", (PerClass(20),))]
arms = grid(regimes, [Model("linear")], losses, k=3, recipe=Recipe(3), protocol=how)
study = Study("known", arms, topk=(1, 3), trials=3, seeds=3)
"""


@pytest.mark.slow
def test_a_store_is_asked(
    train_study: Callable[[Study, Path], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A store with a study that is known here, one that is not, and a smoke run."""
    for study in (known := a_study("known"), a_study("other"), a_study("tried-smoke")):
        train_study(study, tmp_path)

    def ask(**changes: Any) -> Recommendation:
        asked = {"classes": 12, "images": 300, "k": 3, "store": tmp_path, **changes}
        return recommend_from_python([known, a_study("absent")], **asked)

    result = ask()
    assert (result.verdict, result.loss) == ("baseline", "cross_entropy"), sentences(result)
    (one,) = result.near
    assert one.name == "known: few/linear/ldam" and one.first.values == ({"learning_rate": 1e-6},) * 3
    assert one.first.situation == Situation(10, 200, 1.0, 0.0, 3) and one.apart == pytest.approx(1.2 * 1.25)
    assert result.left_out is not None and set(result.left_out) == {"other", "tried-smoke"}
    assert "with --study" in result.left_out["other"] and "a smoke run" in result.left_out["tried-smoke"]
    assert "known: few/linear/ldam" in recommendation_to_markdown(result)
    assert recommendation_to_rich(result)
    far = ask(classes=5000, images=300_000, imbalance=100.0, noise=0.1, k=5)
    assert far.verdict == "unknown" and far.nearest is not None and far.nearest.first.study == "known"

    (tmp_path / "recommending_lab.py").write_text(LAB)
    monkeypatch.syspath_prepend(str(tmp_path))
    options = "--classes 12 --images 300 --k 3 --study recommending_lab:study --json --store"
    monkeypatch.setattr(sys, "argv", ["topk", "recommend", *options.split(), str(tmp_path)])
    with pytest.raises(SystemExit, match="0"):
        main()
    assert json.loads(capsys.readouterr().out) == plain(recommendation_data(result))


def once(gain: float, study: str, **changes: Any) -> Compared:
    """A comparison of arms that were searched once, the same in each study."""
    changes = {"loss": "ldam", "setup": "same", **changes}
    return compared(gain=gain, study=study, covers="seeds and images", searches=1, **changes)


def test_what_was_searched_once_and_nowhere_else_decides_nothing() -> None:
    result = recommended(ASKED, [once(30.0, "a"), once(-30.0, "a", loss="focal", setup="other")])
    assert result.verdict == "unknown" and all(one.p_holm is None and not one.mark for one in result.near)
    assert "`topk run STUDY --searches 3` adds searches" in " ".join(sentences(result))


def test_the_values_of_several_searches_are_those_of_the_best_by_validation() -> None:
    """``Compared.values`` has the best first, whichever search it was."""
    several = compared("ldam", 3.0, values=({"tau": 0.31}, {"tau": 0.5}))
    said = " ".join(sentences(recommended(ASKED, [several])))
    assert "tau = 0.31 (of 2 searches' choices, the best on validation)." in said
    assert "Of 1 near comparison of it, it is better in 1, and worse in none." in said


def test_how_to_add_searches_is_said_once() -> None:
    """Of top-5 accuracy the luck of a search is known, of top-1 accuracy it is not: the answer is about both."""
    twice = [
        once(gain, study, loss=loss, setup=loss)
        for loss in ("focal", "autkc", "gce")
        for gain, study in ((0.0, "a"), (0.1, "b"))
    ]
    first = once(1.0, "a", loss="bss", setup="b", metric="top1", what=replace(ASKED, k=1))
    said = " ".join(sentences(recommended(ASKED, [*twice, once(4.0, "a"), first])))
    assert "Worth searching again: ldam" in said and "it is not known how much another search" in said
    assert said.count("searched once") == said.count("adds searches") == 1


def test_a_seed_without_interval_is_no_loss_that_was_searched_once() -> None:
    alone = replace(compared("ldam", 1.0), cell=Cell(None, estimate([0.01])))
    assert "searched once" not in " ".join(sentences(recommended(ASKED, [alone])))


def test_an_undecided_loss_that_is_behind_leaves_no_room_ahead() -> None:
    """After Holm's correction a difference may be undecided although its own interval lies below 0."""
    behind = [compared(f"l{i}", -0.45) for i in range(12)]
    result = recommended(ASKED, behind)
    assert {one.mark for one in result.near} == {""} and max(one.ahead.high for one in result.near) < 0
    assert "reach up to" not in " ".join(sentences(result))


def test_a_loss_that_was_searched_once_is_worth_searching_again_and_not_recommended() -> None:
    """Others made their comparison twice and hardly moved, so the lead is significant; one search is too few still."""
    twice = [
        once(gain, study, loss=loss, setup=loss)
        for loss in ("focal", "autkc", "gce")
        for gain, study in ((0.0, "a"), (0.1, "b"))
    ]
    result = recommended(ASKED, [*twice, once(9.0, "a"), once(8.0, "a", loss="bss", setup="bss")])
    assert (result.verdict, result.loss, result.promising) == ("unknown", "", ("ldam", "bss"))
    assert {one.loss for one in result.near if one.mark == "better"} == {"bss", "ldam"}
    text = " ".join(sentences(result))
    assert "no loss that was searched more than once is better in its nearest regime" in text
    assert "Worth searching again: ldam is 9.0 ± " in text and "The same holds for bss." in text
    again = recommended(ASKED, [*twice, once(9.0, "a"), once(8.8, "b")])
    assert (again.verdict, again.loss, again.promising) == ("better", "ldam", ())


def test_the_luck_of_a_search_is_what_shows_between_studies_of_the_same_comparison() -> None:
    """Against numpy: the root of the pooled within-group variance, and the interval that follows from it."""
    groups = {"ldam": (1.0, 3.0, 2.6), "focal": (-1.0, 0.5)}
    made = [
        once(gain, f"s{i}", loss=loss, setup=loss)
        for loss, gains in groups.items()
        for i, gain in enumerate(gains)
    ]
    luck = luck_of([*made, once(7.0, "alone", setup="alone")])
    squares = sum(np.var(gains) * len(gains) for gains in groups.values())
    assert luck == {5: Luck(pytest.approx(math.sqrt(squares / 3) / 100), 3)}
    result = {one.loss: one for one in recommended(ASKED, made).near}
    ldam = result["ldam"]
    assert ldam.searches == 3 and ldam.name == "s0: r/mlp/ldam and 2 more"
    assert ldam.ahead.mean == pytest.approx(np.mean(groups["ldam"]) / 100)
    own, search = np.var(JITTER, ddof=1) / 5, squares / 3 / 1e4 / 3
    reach = [part * stats.t.ppf(0.975, freedom) ** 2 for part, freedom in ((own, 12), (search, 3))]
    assert ldam.ahead.half_width == pytest.approx(math.sqrt(sum(reach)))
    assert ldam.ahead.covers == "searches, seeds and images"
    # Less luck at a larger K: that of a smaller one stands in, never the other way round.
    at = {k: recommended(replace(ASKED, k=k), [*made, once(1, "k", metric=f"top{k}", what=replace(ASKED, k=k))])
          for k in (3, 10)}  # fmt: skip
    mine = {k: next(one for one in result.near if one.first.study == "k") for k, result in at.items()}
    assert math.isnan(mine[3].ahead.p) and not math.isnan(mine[10].ahead.p)


def test_variants_of_a_loss_are_no_losses() -> None:
    space = {"learning_rate": Float(0.01, 1)}

    def loss(name: str, label: str = "", searched: bool = True) -> Loss:
        return Loss(name, space if searched else {}, {"learning_rate": 0.1} if searched else {}, label=label)

    losses = [
        loss("cross_entropy"),
        loss("cross_entropy", "cross_entropy-fast"),
        loss("ldam"),
        loss("ldam", "ldam-decay"),
        loss("focal", "my_focal"),
        loss("autkc", searched=False),
    ]
    arms = grid([Regime("r", "digits")], [Model("mlp")], losses, k=3, recipe=Recipe(1))
    pairs = searched_pairs(Study("s", arms, topk=(1, 3)))
    assert [(arm.loss.label, baseline.loss.label) for arm, baseline in pairs] == [
        ("ldam", "cross_entropy"),
        ("my_focal", "cross_entropy"),
    ]
    fixed = [
        replace(arm, loss=loss("cross_entropy", searched=False)) if i == 0 else arm
        for i, arm in enumerate(arms)
    ]
    assert searched_pairs(Study("s", fixed, topk=(1, 3))) == []
