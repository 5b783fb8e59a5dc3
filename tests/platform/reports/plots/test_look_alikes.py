"""The worst pairs of classes, against a plain loop, and the pictures beside their names."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from topk_platform import Arm, Loss, Model, Recipe, Regime
from topk_platform.data import load
from topk_platform.reports.plots.look_alikes import draw_pairs, worst_pairs
from topk_platform.reports.plots.pictures import pixels_of
from topk_platform.reports.plots.plot_data import RunGuesses

SIZES = {"classes": 6, "superclasses": 3, "train": 1, "validation": 1, "test": 3, "size": 8}
REGIME = Regime("images", "synthetic_images", options=SIZES)
ARM = Arm(REGIME, Model("linear"), Loss("cross_entropy"), k=2, recipe=Recipe(1))


@given(st.integers(2, 7), st.integers(1, 12), st.integers(0, 2**16))
def test_the_worst_pairs_are_a_plain_loops(classes: int, count: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    shares = draw.integers(0, 3, (classes, classes)) / 2
    pairs = itertools.combinations(range(classes), 2)
    ordered = sorted((-(shares[a, b] + shares[b, a]), a, b) for a, b in pairs if shares[a, b] + shares[b, a])
    assert worst_pairs(sparse.csr_array(shares), count) == [(a, b) for _, a, b in ordered][:count]


def test_each_pair_has_an_image_of_both_that_was_confused() -> None:
    data = load(REGIME)
    labels = data.test.labels.numpy()
    guesses = np.stack([labels, (labels + 3) % 6], 1)
    guesses[labels == 4, 1] = 5  # so that no image of class 4 has class 1 among its guesses
    guesses[7] = 2, 0  # the second image of class 2: the only one with class 0
    shares = sparse.csr_array(([0.9, 0.5, 1 / 3], ([1, 0, 2], [4, 3, 0])), (6, 6))
    tested = RunGuesses(ARM, 1, data.test.fingerprint, labels, guesses)
    made = draw_pairs(shares, list("abcdef"), tested, "a title")
    (ax,) = made.axes
    drawn = [np.asarray(image.get_array()) for image in ax.images]
    expected = [3, 12, 0, 9, 0, 7]  # the first image with the other class among its guesses, else the first
    pixels = pixels_of(data, expected)
    assert len(drawn) == 6 and all(np.array_equal(a, pixels[i]) for a, i in zip(drawn, expected, strict=True))
    texts = [text.get_text() for text in ax.texts]
    assert texts == ["b", "e", "90 %, 0 %", "a", "d", "50 %, 0 %", "a", "c", "0 %, 33 %"]


def test_without_the_images_there_are_names_and_shares() -> None:
    labels, shares = np.arange(6), sparse.csr_array(([1.0], ([0], [1])), (6, 6))
    tested = RunGuesses(ARM, 1, "others", labels, labels[:, None])
    (ax,) = draw_pairs(shares, list("abcdef"), tested, "a title").axes
    assert not ax.images and [text.get_text() for text in ax.texts] == ["a", "b", "100 %, 0 %"]
