import math

import pytest
import torch

from topk_losses.functional import lapsum_topk, lapsum_topk_loss


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
