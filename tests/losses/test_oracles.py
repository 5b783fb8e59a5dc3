"""The references against closed forms, worked by hand or older than they are."""

import math

import pytest
import torch

from topk_losses.testing import oracles


def row(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_symmetric_polynomials_are_coefficients():
    """``Π (1 + v x)`` for 1, 2, 3, 4 is ``1 + 10x + 35x² + 50x³ + 24x⁴``."""
    values = row(1, 2, 3, 4).log()
    for k, coefficient in enumerate([10, 35, 50, 24], start=1):
        assert oracles.log_elementary_symmetric(values, k).exp().item() == pytest.approx(coefficient)


def test_inclusion_probabilities_by_hand():
    """Of the pairs of 1, 2, 3 with weights 2, 3, 6, those with the first class have 5 of 11."""
    probabilities = oracles.inclusion_probabilities(row(1, 2, 3).log(), 2)
    assert probabilities.tolist() == pytest.approx([5 / 11, 8 / 11, 9 / 11])


def test_hinges_by_hand():
    s = row(3, 1, 2, 0.5)
    assert oracles.topk_hinge(s, 1, 2).item() == 2  # 1 + 2 - 1
    assert oracles.calibrated_topk_hinge(s, 1, 2).item() == 1  # 1 + 1 - 1
    assert oracles.convex_topk_hinge(s, 1, 2).item() == 2.5  # (4 + 3) / 2 - 1
    assert oracles.topk_hinge(s, 0, 2).item() == 0


def test_entropies_by_hand():
    s = row(2, 1, 1).log()  # probabilities 1/2, 1/4, 1/4
    assert oracles.cross_entropy(s, 1).item() == pytest.approx(math.log(4))
    assert oracles.focal(s, 1, 2.0).item() == pytest.approx(9 / 16 * math.log(4))
    assert oracles.truncated_topk_entropy(s, 1, 2).item() == pytest.approx(math.log(2))
    # Of 1/2 and 1/4 each has half: log(1 + 2 sqrt(1/2 · 1/4) / (1/4)).
    assert oracles.topk_entropy(s, 1, 2).item() == pytest.approx(math.log(1 + 2 * math.sqrt(2)))
    assert oracles.topk_grouping(s, 0, 2).item() == pytest.approx(math.log(4 / 3))
    assert oracles.topk_transition(s, 0, 1).item() == pytest.approx(math.log(2))
    assert oracles.balanced_softmax(s, 1, torch.tensor([1, 2, 4])).item() == pytest.approx(math.log(4))
    assert oracles.ldam(s, 1, row(0, math.log(3), 0), 1.0).item() == pytest.approx(math.log(10))


def test_laplacian_memberships_by_hand():
    """The threshold of two classes is their middle; with 1 above and two below, ``e^b`` solves ``x² e^-2 = 2``."""
    p = oracles.lapsum_topk(row(3, 1), 1, temperature=0.5)
    assert p.tolist() == pytest.approx([1 - math.exp(-2) / 2, math.exp(-2) / 2])
    b = 1 + math.log(2) / 2
    p = oracles.lapsum_topk(row(2, 0, 0), 1)
    assert p.tolist() == pytest.approx([1 - math.exp(b - 2) / 2, math.exp(-b) / 2, math.exp(-b) / 2])
    assert oracles.lapsum_topk_loss(row(2, 0, 0), 2, 1).item() == pytest.approx(math.log(2) + b)


def test_expected_maximum_of_two():
    """``E max`` of two normal variables of distance d is ``d Φ(d/√2) + √2 φ(d/√2)``."""
    d = 0.8
    density = math.exp(-d * d / 4) / math.sqrt(2 * math.pi)
    expected = d * 0.5 * math.erfc(-d / 2) + math.sqrt(2) * density
    assert oracles.expected_topk(row(0, d), 1, 1.0).item() == pytest.approx(expected, abs=1e-12)
    assert oracles.expected_topk(row(0, d), 2, 1.0).item() == pytest.approx(d - expected, abs=1e-12)
