"""Claims: what is checked when a study is made, how they are decided, and how often wrongly."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pytest
from made_histories import make_runs
from made_studies import small_study

from topk_platform import Claim, Contrast, Float, Loss, Protocol, Study, UserError
from topk_platform.reports.claims_and_classes import claims_as, contrast_text
from topk_platform.results import decisions as deciding
from topk_platform.results.cells import Runs
from topk_platform.results.decisions import ContrastResult, Decision, Evidence
from topk_platform.results.significance import Precision
from topk_platform.specs import Repeats

PLAIN = small_study("cross_entropy", "smooth_topk_svm")
OURS, THEIRS = "r/mlp/smooth_topk_svm", "r/mlp/cross_entropy"
GAP = Contrast.between(OURS, THEIRS, "top3")


def claim(direction: str = "above", **changes: object) -> Claim:
    fields = {"name": "c", "text": "It is so.", "source": "me", "contrasts": [GAP], "direction": direction}
    return Claim(**{**fields, **changes})  # type: ignore[arg-type]


def study(*claims: Claim) -> Study:
    return dataclasses.replace(PLAIN, claims=claims)


def judged(wanted: Claim, runs: Mapping[str, Runs], planned: int = 5, once: Collection[str] = ()) -> Evidence:
    result = deciding.of_runs(GAP, runs, once, Repeats(runs[OURS].searches or 1).seeds(planned))
    return deciding._evidence(study(wanted), wanted, GAP, result)


def decided(
    wanted: Claim, ours: Sequence[float], theirs: Sequence[float], status: Mapping[int, str] | None = None
) -> Evidence:
    return judged(
        wanted, {OURS: make_runs(ours, status=status), THEIRS: make_runs(theirs)}, max(len(ours), 5)
    )


NOISE = [0.001, -0.001, 0.002, -0.002, 0.0]


def shifted(points: float) -> list[float]:
    return [0.5 + points / 100 + e for e in NOISE]


@pytest.mark.parametrize(
    ("wanted", "points", "verdict"),
    [
        (claim(), 2.0, "confirmed"),
        (claim(), 0.1, "undecided"),
        (claim(), -2.0, "refuted"),
        (claim(tolerance=1.0), 0.1, "refuted"),  # what is left matters to nobody
        (claim(tolerance=0.5), 2.0, "confirmed"),
        (claim(tolerance=1.9), 2.0, "undecided"),  # it is above 0, but is it above 1.9?
        (claim("below", tolerance=0.5), -2.0, "confirmed"),
        (claim("below", tolerance=0.5), -0.1, "refuted"),
        (claim(bound=5.0), 2.0, "refuted"),
        (claim("below"), -2.0, "confirmed"),
        (claim("below"), 2.0, "refuted"),
        (claim("within", tolerance=0.5), 0.1, "confirmed"),
        (claim("within", tolerance=0.5), 0.45, "undecided"),
        (claim("within", tolerance=0.5), 2.0, "refuted"),
        (claim("within", tolerance=0.5), -2.0, "refuted"),
    ],
)
def test_directions_and_tolerances(wanted: Claim, points: float, verdict: str) -> None:
    assert decided(wanted, shifted(points), [0.5] * 5).verdict == verdict


def test_what_lacks_data_waits_and_what_lost_seeds_is_not_decided() -> None:
    assert decided(claim(), [], [0.5] * 5).verdict == "waits for data"
    assert decided(claim(), [0.6, 0.7], [0.5] * 5).verdict == "waits for data"
    lost = decided(claim(), shifted(2.0), [0.5] * 5, {2: "diverged"})
    assert (lost.verdict, lost.why) == ("undecided", f"seeds were lost in {OURS}")
    assert decided(claim(), [0.6] * 5, [0.5] * 5).verdict == "undecided"  # no spread


def test_a_claim_needs_all_of_its_contrasts_and_falls_with_one() -> None:
    def of(*verdicts: str) -> str:
        return Decision(claim(), tuple(Evidence(GAP, None, v) for v in verdicts)).verdict  # type: ignore[arg-type]

    assert of("confirmed", "confirmed") == "confirmed"
    assert of("confirmed", "undecided") == "undecided"
    assert of("confirmed", "waits for data", "undecided") == "waits for data"
    assert of("waits for data", "refuted", "confirmed") == "refuted"


def test_the_seeds_to_plan_have_the_power_that_is_reported() -> None:
    """They confirm twice the tolerance in 80 % of studies, one seed fewer does not, and the mean plays no part."""
    wide = [0.5 + 5 * e for e in NOISE]
    result, other = (
        decided(claim(tolerance=0.5), [v + shift for v in wide], [0.5] * 5) for shift in (0.004, 0.007)
    )
    assert result.effect == 1.0 and result.seeds == other.seeds and result.seeds is not None
    assert result.estimate is not None and result.estimate.precision is not None
    precision, level = result.estimate.precision, 0.975
    assert precision.power(0.005, result.seeds, level) >= 0.8
    assert precision.power(0.005, result.seeds - 1, level) < 0.8
    open_ = decided(
        claim(), wide, [0.5] * 5
    )  # without a tolerance or a paper's number, what has a power of 80 %
    assert open_.power == pytest.approx(0.8) and open_.effect is not None and open_.seeds == 5


def test_the_seeds_to_plan_for_within_let_both_of_its_tests_succeed() -> None:
    """Of 2,000 simulated studies without a difference, 80 % or more confirm, give or take three standard errors."""
    wanted = claim("within", tolerance=1.0)
    seeds = deciding._Tested(wanted, 0.0, Precision(0.1, 0.0, 10, math.inf), 10).seeds(0.0)
    assert seeds is not None
    rng, confirmed = np.random.default_rng(5), 0
    for values in rng.normal(0, 1, (2000, seeds)):
        precision = Precision(float(values.var(ddof=1)) / seeds, 0.0, seeds, math.inf)
        judged = deciding._Tested(wanted, float(values.mean()), precision, seeds)
        confirmed += judged.verdict() == "confirmed"
    assert confirmed / 2000 > 0.8 - 3 * math.sqrt(0.8 * 0.2 / 2000)


def test_no_fewer_seeds_are_to_plan_than_a_test_needs() -> None:
    precise = deciding._Tested(claim(tolerance=5.0), 0.0, Precision(1e-6, 0.0, 10, math.inf), 10)
    assert precise.seeds(10.0) == 3


def test_wrong_decisions_are_rarer_than_said() -> None:
    """2,000 studies without any difference: 2.5 % on either side."""
    rng, counts = np.random.default_rng(5), {"confirmed": 0, "refuted": 0, "undecided": 0}
    for values in rng.normal(0.5, 0.02, (2000, 5)):
        counts[decided(claim(), list(values), [0.5] * 5).verdict] += 1
    for verdict in ("confirmed", "refuted"):
        assert abs(counts[verdict] / 2000 - 0.025) < 4 * math.sqrt(0.025 * 0.975 / 2000)


def test_seeds_beyond_the_plan_change_no_verdict_and_before_it_none_is_given() -> None:
    """So whoever looks after every seed, and adds more of them, confirms no more often than who looks once."""
    values = shifted(0.1) + [0.6] * 5
    runs = {OURS: make_runs(values), THEIRS: make_runs([0.5] * 10)}
    early = judged(claim(), {name: of_arm.of_seeds([1, 2, 3, 4]) for name, of_arm in runs.items()})
    assert (early.verdict, early.why) == ("waits for data", "4 of 5 planned seeds have ended")
    assert judged(claim(), runs).estimate == decided(claim(), shifted(0.1), [0.5] * 5).estimate
    assert judged(claim(), runs, planned=10).verdict == "confirmed"


def test_an_arm_that_was_searched_once_decides_nothing() -> None:
    runs = {OURS: make_runs(shifted(2.0)), THEIRS: make_runs([0.5] * 5)}
    result = judged(claim(), runs, once=(OURS,))
    assert result.verdict == "undecided" and OURS in result.why


def test_seeds_to_plan_where_searches_were_repeated_are_so_many_of_each() -> None:
    """Six seeds of three searches: a search more brings two seeds more."""
    ours = make_runs(dict(zip(Repeats(3).seeds(6), [0.51, 0.5, 0.49, 0.52, 0.5, 0.49], strict=True)), 3)
    theirs = make_runs(dict.fromkeys(Repeats(1, 3).seeds(6), 0.5))
    result = judged(claim(tolerance=0.5), {OURS: ours, THEIRS: theirs}, planned=6)
    assert result.estimate is not None and result.estimate.precision is not None
    precision = result.estimate.precision
    assert (result.estimate.n, precision.rows) == (6, 3)
    searches = precision.rows_for(0.005, 0.975) or 0
    assert result.seeds == 2 * searches > 6
    decision = Decision(claim(tolerance=0.5), (dataclasses.replace(result, planned=6),))
    assert f"| {result.seeds} seeds of {searches} searches |" in str(claims_as("md", "s", [decision]))


@pytest.mark.parametrize(
    ("defined", "asked", "searched", "fixed"),
    [
        (1, {}, 4, 4),
        (1, {"seeds": 20}, 4, 4),
        (1, {"searches": 3}, 12, 4),  # one search decides nothing about arms that search: these are the plan
        (1, {"searches": 3, "seeds": 30}, 12, 4),
        (2, {}, 8, 8),
        (2, {"searches": 6}, 8, 8),
        (2, {"seeds": 80}, 8, 8),
    ],
)
def test_the_plan_is_the_definitions_whatever_budget_is_requested(
    defined: int, asked: Mapping[str, int], searched: int, fixed: int
) -> None:
    """Whoever looked at two searches and adds four more has not planned six."""
    space = {"tau": Float(0.1, 1)}
    losses = "cross_entropy", Loss("smooth_topk_svm", space, {"tau": 0.5}), "topk_hinge"
    claims = (claim(contrasts=[GAP, Contrast.between("r/mlp/topk_hinge", THEIRS, "top3")]),)
    protocol, each = Protocol(searches=defined), 4 * defined
    made = small_study(*losses, protocol=protocol, trials=each, seeds=each, claims=claims)
    for requested in (made.with_budget(**asked), made.with_budget(**asked).with_budget()):
        (decision,) = deciding.decisions_of(requested, [ContrastResult(None, "no seeds", waits=True)] * 2)
        assert [evidence.planned for evidence in decision.evidence] == [searched, fixed]


def test_a_claim_waits_while_seeds_are_of_one_search_alone() -> None:
    ours = make_runs(dict(zip(Repeats(3).seeds_of(0, 15), shifted(2.0), strict=True)), 3)
    result = judged(claim(), {OURS: ours, THEIRS: make_runs([0.5] * 5)}, planned=15)
    assert (result.verdict, result.why) == ("waits for data", "5 of 15 planned seeds have ended")


def test_a_difference_of_differences_is_one_contrast() -> None:
    other = Contrast({"a/m/x": 1.0, "a/m/y": -1.0}, "top3")
    both = GAP.minus(other)
    assert both.weights == {OURS: 1.0, THEIRS: -1.0, "a/m/x": -1.0, "a/m/y": 1.0}
    assert GAP.minus(Contrast({THEIRS: -1.0}, "top3")).weights == {OURS: 1.0}
    with pytest.raises(UserError, match="of one metric"):
        GAP.minus(Contrast.between("a", "b", "top1"))
    assert contrast_text(Contrast({OURS: 2.0}, "top1")) == "top1: 2·r/mlp/smooth_topk_svm"
    mean = {
        f"{regime}/mlp/{loss}": w for regime in "abc" for loss, w in (("ours", 1 / 3), ("theirs", -1 / 3))
    }
    assert contrast_text(Contrast(mean, "top1")) == "top1: ours - theirs, mlp, mean of a, b, c"
    unlike = contrast_text(Contrast({**mean, "c/mlp/ours": 0.5}, "top1"))
    assert unlike.startswith("top1: 0.333333·a/ours - 0.333333·a/theirs") and "mean" not in unlike


def about(name: str, metric: str = "top3") -> Study:
    return study(claim(contrasts=[Contrast.between(name, THEIRS, metric)]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Contrast({}, "top3"), "an arm or more"),
        (lambda: Contrast({OURS: 0.0}, "top3"), "weight 0"),
        (lambda: claim(contrasts=[]), "contrast"),
        (lambda: claim(direction="beside"), "direction"),
        (lambda: claim("within"), "tolerance"),
        (lambda: claim("within", tolerance=1.0, bound=1.0), "bound"),
        (lambda: claim(text=""), "text"),
        (lambda: claim(name="a b"), "name"),
        (lambda: study(claim(), claim()), "two claims are called c"),
        (lambda: about("x/y/z"), "'x/y/z'"),
        (lambda: about(OURS, "top7"), "'top7'"),
    ],
)
def test_a_wrong_claim_is_reported_when_the_study_is_made(make: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make()  # type: ignore[operator]


def test_claims_change_no_result_and_go_with_their_arms() -> None:
    with_one, without = study(claim()), study()
    assert [*map(with_one.arm_id, with_one.arms)] == [*map(without.arm_id, without.arms)]
    assert with_one.only("*/cross_entropy").claims == () and len(with_one.only("*").claims) == 1
    assert with_one.smoke().claims == ()


def test_decided_claims_as_text() -> None:
    done = Decision(claim(), (decided(claim(), shifted(2.0), [0.5] * 5),))
    open_ = Decision(
        dataclasses.replace(claim(), name="open", stand_in=True),
        (decided(claim(tolerance=3.0), shifted(0.1), [0.5] * 5),),
    )
    text = str(claims_as("md", "s", [done, open_]))
    row = "| top3: smooth_topk_svm - cross_entropy, r/mlp | above 0 |"
    assert "## c: confirmed" in text and "(me, stand-in)" in text
    assert f"{row} +2.00 ± 0.20 | 5 | 0.80 for" in text
    assert f"{row} +0.10 ± 0.20 | 5 | 1.00 for 6 | refuted |" in text
    rows = list(csv.DictReader(io.StringIO(str(claims_as("csv", "s", [done, open_])))))
    assert [row["claim"] for row in rows] == ["c", "open"]
    assert float(rows[0]["low"]) == pytest.approx(2.0 - 0.196, abs=1e-2)
