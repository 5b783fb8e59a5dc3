import math

import pytest
import torch

from topk_losses.functional import lapsum_topk, lapsum_topk_loss
from topk_losses.testing import oracles


@pytest.mark.parametrize("classes", [2, 3, 9, 40])
@pytest.mark.parametrize("temperature", [0.01, 1.0, 100.0])
def test_memberships_are_those_of_bisection(classes, temperature, sample):
    scores = sample(4, classes, 3.0)[0]
    for k in {1, 2, classes // 2, classes - 1} - {0, classes}:
        expected = torch.stack([oracles.lapsum_topk(row, k, temperature) for row in scores])
        torch.testing.assert_close(lapsum_topk(scores, k, temperature), expected, rtol=0, atol=1e-9)


def test_equal_scores_have_equal_shares():
    for k in range(1, 8):
        for temperature in (1e-4, 1.0, 1e4):
            p = lapsum_topk(torch.full((2, 7), 3.0), k, temperature)
            torch.testing.assert_close(p, torch.full((2, 7), k / 7))
            loss = lapsum_topk_loss(torch.zeros(1, 9), torch.tensor([4]), k, temperature)
            assert loss.item() == pytest.approx(-math.log(k / 9), rel=1e-6)


def test_a_target_far_below_costs_its_distance():
    """-log of a p that underflows: the threshold is half-way between 1000 and 0."""
    scores = torch.tensor([[1000.0, 0.0, -1000.0]], requires_grad=True)
    loss = lapsum_topk_loss(scores, torch.tensor([2]), 1)
    loss.backward()
    assert loss.item() == pytest.approx(1500 + math.log(2))
    torch.testing.assert_close(scores.grad, torch.tensor([[0.5, 0.5, -1.0]]))


def test_the_operators_small_memberships_have_their_gradient():
    scores = torch.tensor([[25.0, 0.0, -25.0]], requires_grad=True)
    loss = -lapsum_topk(scores, 1)[0, 1].log()
    (gradient,) = torch.autograd.grad(loss, scores)
    torch.testing.assert_close(gradient, torch.tensor([[0.5, -0.5, 0.0]]))
