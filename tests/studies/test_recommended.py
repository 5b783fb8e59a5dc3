"""Twelve questions to ``topk recommend``, with the answers that a statistician gives from the shipped findings.

Most shipped comparisons are of letters, with a perceptron and, in three regimes, a convolutional network, neither of
them pretrained. `letters_searches` searched each loss five times, so its intervals have the luck of the search in them.
So did `letters_k`, `letters_capacity` and `letters_imbalance`. The other studies of letters searched each loss once, 18
of their comparisons in two to four studies. Between these a difference moves by 0.86 points of top-5
accuracy and by 2.8 of top-1 accuracy (18 degrees of freedom), so a difference that was measured once is known to ± 1.8
points at best, and one that was measured twice to ± 1.3.
The comparisons of photos are of CIFAR-100's features by a pretrained network, where each loss was searched three times.
"""

from __future__ import annotations

from functools import cache

import pytest
from shipped import shipped

from topk_platform.reports.recommendation_text import sentences
from topk_platform.results.comparisons import Compared, Situation
from topk_platform.results.recommendation import Recommendation, recommended


@cache
def compared() -> tuple[Compared, ...]:
    return tuple(one for findings in shipped() for one in findings.compared())


def ask(classes: int, each: float, noise: float = 0.0, imbalance: float = 1.0, k: int = 5) -> Recommendation:
    return recommended(Situation(classes, round(classes * each), imbalance, noise, k), compared())


QUESTIONS = {
    # Four searches of each loss with this very noise, in studies of one search: the smooth SVM at -0.2 ± 1.0, the soft
    # top-K loss at +0.1 ± 0.9, the others behind. Five more in one study: from -0.3 ± 1.5 to +1.4 ± 2.3. An arm of an
    # ablation is no answer.
    "noisy, 50 images a class": (ask, (62, 50, 0.8), "", "keep cross_entropy"),
    # Three searches: all within 0.2 ± 0.9.
    "clean, 50 images a class": (ask, (62, 50), "", "keep cross_entropy"),
    # After one search four losses are 3.5 to 4.5 points ahead, give or take 1.7. After five the smooth SVM and the soft
    # top-K loss still are 4 points ahead, give or take 2.5, which is not enough beside all near comparisons.
    # Kanji are as near, where five searches leave 5 points.
    "noisy, 5 images a class": (ask, (62, 5, 0.8), "", "reach up to +10.8 points (kanji_classes"),
    # 1.3 to 1.7 points ahead, give or take 2: with twice the noise it would be an answer.
    "half as noisy, 5 images a class": (ask, (62, 5, 0.4), "", "keep cross_entropy"),
    # Every top-K loss for balanced data is behind; focal, LDAM and the noised imbalanced hinge are level or behind.
    # Balanced softmax is 1.6 ± 0.8 points ahead on letters after five searches, which is not enough beside all others,
    # and by 8 points on CIFAR-100's features after three, which is.
    "a long tail": (ask, (62, 38, 0.0, 50), "", "reach up to +2.6 points (letters: long-tail/convnet"),
    "a longer tail": (
        ask,
        (100, 100, 0.0, 100),
        "balanced_softmax",
        "8.3 ± 1.2 points of top-5 accuracy ahead",
    ),
    # Two searches of the smooth SVM: -0.2 ± 1.1.
    "noisy, 150 images a class": (ask, (62, 150, 0.8), "", "keep cross_entropy"),
    # One search, and at top-1 that says ± 5.8.
    "one guess": (ask, (62, 50, 0.8, 1.0, 1), "", "keep cross_entropy"),
    # Within 0.3 ± 1.5.
    "ten guesses": (ask, (62, 50, 0.0, 1.0, 10), "", "keep cross_entropy"),
    # 129 times apart in classes and images: letters say nothing about it.
    "ImageNet": (ask, (1000, 1280), "", "nothing near was measured"),
    # As many classes as CIFAR-100 and wrong labels, but few images: near letters and photos, which the first line says.
    "100 classes with wrong labels": (
        ask,
        (100, 50, 0.4),
        "",
        "measured on letters and features of cifar100 with",
    ),
    # CIFAR-100 itself: the nearest regime is its own, and there all is undecided after three searches.
    "CIFAR-100 with wrong labels": (
        ask,
        (100, 450, 0.4),
        "",
        "measured on features of cifar100 and letters with",
    ),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_answer_is_a_statistician_s(question: str) -> None:
    asking, situation, loss, said = QUESTIONS[question]
    result = asking(*situation)
    text = sentences(result)
    assert result.loss == loss, text
    assert any(said in line for line in text), text
    assert result.verdict == ("better" if loss else "unknown")
    if result.near:
        weights = "some of them pretrained" if "features" in text[0] else "not pretrained"
        assert "letters" in text[0] and weights in text[0]


def test_the_luck_of_a_search_is_computed_from_the_findings() -> None:
    luck = ask(62, 50).luck
    assert {k: round(100 * one.deviation, 1) for k, one in luck.items()} == {1: 2.8, 5: 0.9}
    assert {one.freedom for one in luck.values()} == {18}


def test_nothing_that_was_not_searched_or_is_a_variant_is_evidence() -> None:
    labels = {one.loss for one in compared()}
    assert not any("-" in label for label in labels)
    assert {one.baseline for one in compared()} == {"cross_entropy"}


def test_what_was_compared_most_often_is_known_best() -> None:
    """Of comparisons that were searched once per study; repeated searches of a study have an interval of their own."""
    widths: dict[int, list[float]] = {}
    for one in ask(62, 50, 0.8).near:
        if one.first.model == "mlp" and one.apart == 1 and one.searches == len(one.parts):
            widths.setdefault(one.searches, []).append(one.ahead.half_width)
    assert set(widths) == {1, 2}
    assert max(widths[2]) < min(widths[1])
