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


def test_shapes_precisions_vmap_and_compile(sample):
    scores = sample(6, 10)[0].reshape(2, 3, 10)
    expected = lapsum_topk(scores, 3)
    assert expected.shape == (2, 3, 10)
    torch.testing.assert_close(lapsum_topk(scores[0, 0], 3), expected[0, 0])
    torch.testing.assert_close(torch.func.vmap(lambda s: lapsum_topk(s, 3))(scores), expected)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        rounded = scores.to(dtype)
        result = lapsum_topk(rounded, 3)
        assert result.dtype == torch.float32
        torch.testing.assert_close(result.double(), lapsum_topk(rounded.double(), 3), rtol=0, atol=1e-6)

    def total(s):
        return lapsum_topk(s, 3).square().sum()

    slopes = torch.func.vmap(torch.func.grad(total))(scores)
    torch.testing.assert_close(slopes, torch.func.grad(total)(scores))
    torch._dynamo.reset()
    compiled = torch.compile(lambda s: lapsum_topk(s, 3), fullgraph=True, backend="aot_eager")
    leaves = [scores.clone().requires_grad_() for _ in range(2)]
    result = [f(leaf) for f, leaf in zip((compiled, lambda s: lapsum_topk(s, 3)), leaves, strict=True)]
    torch.testing.assert_close(*result)
    torch.testing.assert_close(
        *[torch.autograd.grad(p.square().sum(), leaf)[0] for p, leaf in zip(result, leaves, strict=True)]
    )
