"""Thirteen questions to ``topk recommend``, with the answers that a statistician gives from the shipped findings.

Most shipped comparisons are of letters, with a perceptron and, in three regimes, a convolutional network, neither of
them pretrained. All but one of the studies that search did it three or five times, so their intervals have the luck of
the search in them. `letters` searched each loss once. What repeated searches of near comparisons show stands in there:
with clean letters a difference moves by 1.0 points of top-5 accuracy from search to search, with noise 0.8 by 2.4.
The comparisons of photos are of CIFAR-100's features by a pretrained network, where each loss was searched three or
five times, and of a small network that was trained from its pixels.
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
    # Twenty searches or more with this very noise: the smooth SVM at +1.1 ± 1.5, the soft top-K loss at +1.0 ± 1.1, the
    # noised hinge level. An arm of an ablation is no answer.
    "noisy, 50 images a class": (ask, (62, 50, 0.8), "", "keep cross_entropy"),
    # Fifteen searches: all within 0.1 ± 0.5.
    "clean, 50 images a class": (ask, (62, 50), "", "keep cross_entropy"),
    # After ten searches the smooth SVM is 3.3 ± 2.0 points ahead and the soft top-K loss 3.2 ± 1.5, which is not enough
    # beside all near comparisons. A convnet is as near, where five searches leave 7 points.
    "noisy, 5 images a class": (ask, (62, 5, 0.8), "", "reach up to +12.8 points (letters_convnet"),
    # 1.3 to 1.9 points ahead, give or take 2.
    "half as noisy, 5 images a class": (ask, (62, 5, 0.4), "", "keep cross_entropy"),
    # Every top-K loss for balanced data is behind; focal, LDAM and the noised imbalanced hinge are level or behind.
    # Balanced softmax is 1.6 ± 0.8 points ahead on letters after five searches, which is not enough beside all others,
    # and by 8 points on CIFAR-100's features after three, which is.
    "a long tail": (
        ask,
        (62, 38, 0.0, 50),
        "",
        "reach up to +2.4 points (letters_searches: long-tail/mlp/bal",
    ),
    "a longer tail": (
        ask,
        (100, 100, 0.0, 100),
        "balanced_softmax",
        "8.3 ± 1.2 points of top-5 accuracy ahead",
    ),
    # Ten searches of the smooth SVM: +0.8 ± 0.9.
    "noisy, 150 images a class": (ask, (62, 150, 0.8), "", "keep cross_entropy"),
    # Five searches for one guess, which at top-1 leave ± 6.1 or more.
    "one guess": (ask, (62, 50, 0.8, 1.0, 1), "", "keep cross_entropy"),
    # Five searches for ten guesses: within 0.4 ± 0.5.
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
    # CIFAR-100 itself: the nearest regime is its own, and there all is undecided after five searches.
    "CIFAR-100 with wrong labels": (
        ask,
        (100, 450, 0.4),
        "",
        "measured on features of cifar100, cifar100 and letters with",
    ),
    # There two losses lead after ten searches in two studies. But transition is worse with 100 images, and the SVM does
    # not lead in a network that learns its features.
    "CIFAR-100 with mostly wrong labels": (
        ask,
        (100, 450, 0.8),
        "",
        "2 better, 2 worse",
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
    assert {k: round(100 * one.deviation, 1) for k, one in luck.items()} == {1: 4.0, 3: 0.7, 5: 1.0, 10: 0.3}
    assert {k: one.freedom for k, one in luck.items()} == {1: 482, 3: 48, 5: 482, 10: 48}
    noisy = ask(62, 50, 0.8).luck
    assert round(100 * noisy[5].deviation, 1) == 2.4  # docs/recommend.md states these
    assert round(100 * ask(100, 450).luck[5].deviation, 1) == 0.9
    assert round(100 * ask(1006, 10, 0.8).luck[5].deviation, 1) == 8.0


def test_nothing_that_was_not_searched_or_is_a_variant_is_evidence() -> None:
    labels = {one.loss for one in compared()}
    assert not any("-" in label for label in labels)
    assert {one.baseline for one in compared()} == {"cross_entropy"}
