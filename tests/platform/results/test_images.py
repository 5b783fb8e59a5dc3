"""The images' part of a mean's variance, drawn alone or in groups, beside slow and independent oracles."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topk_platform.results.images import Groups, image_part


def crossed_by_hand(rows: list[list[float]]) -> float:
    """The images' part of a mean's variance by the mean squares of a two-way table, in plain loops."""
    seeds, images = len(rows), len(rows[0])
    of_seed = [sum(row) / images for row in rows]
    of_image = [sum(row[i] for row in rows) / seeds for i in range(images)]
    mean = sum(of_seed) / seeds
    images_square = seeds * sum((m - mean) ** 2 for m in of_image) / (images - 1)
    rest = sum(
        (rows[s][i] - of_seed[s] - of_image[i] + mean) ** 2 for s in range(seeds) for i in range(images)
    )
    return (images_square - rest / (seeds - 1) / (images - 1)) / (seeds * images)


@given(st.integers(0, 2**32 - 1), st.integers(2, 5), st.integers(2, 12))
def test_the_images_part_is_that_of_the_mean_squares(seed: int, seeds: int, images: int) -> None:
    rows = np.random.default_rng(seed).integers(0, 3, (seeds, images)) / 2
    part = image_part(rows)
    assert part.variance == pytest.approx(max(crossed_by_hand(rows.tolist()), 0), abs=1e-12)
    assert part.size == pytest.approx(images)


@given(st.integers(0, 2**32 - 1))
def test_classes_of_one_weight_each_add_up(seed: int) -> None:
    """A mean over classes has the sum of the classes' own parts, a quarter of each where there are two."""
    rng = np.random.default_rng(seed)
    rows, strata = rng.random((3, 9)), np.array([0, 1, 1, 0, 1, 1, 0, 1, 2])
    both = image_part(rows, strata, np.array([0.5, 0.5, 0.0]))
    own = [crossed_by_hand(rows[:, strata == c].tolist()) for c in (0, 1)]
    assert both.variance == pytest.approx(max(sum(own) / 4, 0), abs=1e-12)
    assert both.size == pytest.approx(1 / (0.25 / 3 + 0.25 / 5))


def test_a_class_of_one_image_has_the_spread_of_the_others() -> None:
    rows, strata = np.array([[1.0, 0, 1], [1, 0, 1]]), np.array([0, 0, 1])
    part = image_part(rows, strata, np.array([0.5, 0.5]))
    assert part.variance == pytest.approx(0.25 * 0.5 / 2 + 0.25 * 0.5 / 1)


def test_a_class_that_does_not_count_shows_its_spread_only_if_its_images_are_of_several_groups() -> None:
    """The third class, with weight 0 and all its images in one group, says nothing about the second."""
    rows, strata, clusters = (
        np.array([[1.0, 0, 1, 0, 1]] * 2),
        np.array([0, 0, 1, 2, 2]),
        np.array([0, 1, 2, 3, 3]),
    )
    part = image_part(rows, strata, np.array([0.5, 0.5, 0]), clusters=clusters)
    assert part.variance == pytest.approx(0.25 * 0.5 / 2 + 0.25 * 0.5 / 1)


def test_the_means_of_searches_are_crossed_with_images() -> None:
    runs = np.random.default_rng(0).random((6, 20))
    part = image_part(runs, searches=[0, 1, 2, 0, 1, 2])
    assert part.variance == pytest.approx(max(crossed_by_hand(((runs[:3] + runs[3:]) / 2).tolist()), 0))
    assert part.single == pytest.approx(image_part(runs).single)


def cr2_by_matrices(x: np.ndarray, strata: np.ndarray, weights: np.ndarray, groups: np.ndarray) -> float:
    """Bell and McCaffrey's CR2 variance of a weighted sum of class means, as a regression on dummies of the classes."""
    design = np.eye(len(weights))[strata]
    inverse = np.linalg.inv(design.T @ design)
    hat = design @ inverse @ design.T
    residuals = x - hat @ x
    row = weights @ inverse @ design.T
    total = 0.0
    for group in np.unique(groups):
        mine = groups == group
        rest = np.eye(mine.sum()) - hat[np.ix_(mine, mine)]
        values, vectors = np.linalg.eigh(rest)
        root = vectors @ np.diag([0.0 if v < 1e-9 else v**-0.5 for v in values]) @ vectors.T
        total += float(row[mine] @ root @ residuals[mine]) ** 2
    return total


@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_the_variance_of_groups_is_cr2s(seed: int, classes: int) -> None:
    rng = np.random.default_rng(seed)
    strata = np.repeat(np.arange(classes), 12)
    groups = np.concatenate([rng.permutation(np.arange(12) % 5) for _ in range(classes)])
    x, weights = rng.random(len(strata)), rng.dirichlet(np.ones(classes))
    result = Groups.of(strata, weights, groups).variances(x[None])[0]
    assert result == pytest.approx(cr2_by_matrices(x, strata, weights, groups))


@given(st.lists(st.integers(1, 9), min_size=3, max_size=9))
def test_the_degrees_of_freedom_of_groups_are_satterthwaites(sizes: list[int]) -> None:
    """By the matrix that makes the groups' scores of their values: tr(MMᵀ)² / tr(MMᵀMMᵀ)."""
    groups = np.repeat(np.arange(len(sizes)), sizes)
    q = np.array(sizes) / sum(sizes)
    scores = np.diag(q / np.sqrt(1 - q)) @ (np.eye(len(q)) - np.outer(np.ones(len(q)), q))
    gram = scores @ scores.T
    expected = np.trace(gram) ** 2 / np.trace(gram @ gram)
    result = Groups.of(np.zeros(len(groups), int), np.ones(1), groups)
    assert result.freedom == pytest.approx(max(expected, 1.0)) and result.known
    equal = Groups.of(np.zeros(30, int), np.ones(1), np.repeat(np.arange(10), 3))
    assert equal.freedom == pytest.approx(9)


def test_images_that_are_right_or_wrong_together_count_as_one() -> None:
    """Ten images of each of 30 typefaces, all alike: the variance is that of 30 images."""
    alike = np.random.default_rng(3).random((3, 30)) < 0.8
    alike[:, :4] = False
    rows = np.repeat(alike, 10, axis=1).astype(float)
    grouped = image_part(rows, clusters=np.repeat(np.arange(30), 10))
    alone, naive = image_part(alike.astype(float)), image_part(rows)
    assert grouped.variance == pytest.approx(alone.variance)
    assert grouped.freedom == pytest.approx(29)
    assert grouped.variance / naive.variance == pytest.approx(10, rel=0.1)  # the design effect
    assert grouped.persistence > 5 * naive.persistence


def test_images_that_are_groups_of_their_own_are_ungrouped() -> None:
    rows = np.random.default_rng(4).random((4, 40))
    assert image_part(rows, clusters=np.arange(40)).variance == pytest.approx(image_part(rows).variance)


def test_no_digit_depends_on_the_processors_kernels_for_matrices() -> None:
    """OpenBLAS has kernels of its own for each kind of processor, which add in other orders."""
    code = """
import os
import subprocess
import sys

import numpy as np
from topk_platform.results.images import image_part
random = np.random.default_rng(1)
runs, strata, groups = random.random((7, 600)), random.integers(62, size=600), random.integers(30, size=600)
for clusters in (None, groups):
    print(repr(image_part(runs, strata, np.full(62, 1 / 62), clusters=clusters)))
"""
    outputs = [
        subprocess.check_output([sys.executable, "-c", code], env=os.environ | {"OPENBLAS_CORETYPE": kind})
        for kind in ("Prescott", "Haswell")
    ]
    assert outputs[0] == outputs[1] != b""
