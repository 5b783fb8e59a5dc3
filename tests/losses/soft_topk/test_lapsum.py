import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from topk_losses.functional import lapsum_topk, lapsum_topk_loss
from topk_losses.testing import oracles


@pytest.mark.parametrize(("k", "temperature"), [(1, 0.3), (2, 3.0), (3, 0.3), (5, 1.0), (7, 0.3)])
def test_loss_and_gradient_are_those_of_the_definition(k, temperature, assert_matches_oracle):
    assert_matches_oracle(
        "lapsum_topk_loss", classes=8, parameters={"k": k, "temperature": temperature}, rows=4
    )


@pytest.mark.parametrize("classes", [2, 3, 9, 40])
@pytest.mark.parametrize("temperature", [0.01, 1.0, 100.0])
def test_memberships_are_those_of_bisection(classes, temperature, sample):
    scores = sample(4, classes, 3.0)[0]
    for k in {1, 2, classes // 2, classes - 1} - {0, classes}:
        expected = torch.stack([oracles.lapsum_topk(row, k, temperature) for row in scores])
        torch.testing.assert_close(lapsum_topk(scores, k, temperature), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_derivatives(k, sample):
    scores, target = sample(2, 5)
    scores.requires_grad_()
    for function in (
        lambda s: lapsum_topk(s, k, 0.7),
        lambda s: lapsum_topk_loss(s, target, k, 0.7, reduction="none"),
    ):
        assert torch.autograd.gradcheck(function, scores)
        assert torch.autograd.gradgradcheck(function, scores)


def test_equal_scores_have_equal_shares():
    for k in range(1, 8):
        for temperature in (1e-4, 1.0, 1e4):
            p = lapsum_topk(torch.full((2, 7), 3.0), k, temperature)
            torch.testing.assert_close(p, torch.full((2, 7), k / 7))
            loss = lapsum_topk_loss(torch.zeros(1, 9), torch.tensor([4]), k, temperature)
            assert loss.item() == pytest.approx(-math.log(k / 9), rel=1e-6)


def test_limits_of_the_temperature():
    scores = torch.tensor([[5.0, 3.0, 3.0, 1.0, 0.0]])
    cold = [[1, 0, 0, 0, 0], [1, 0.5, 0.5, 0, 0], [1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1] * 5]
    for k, expected in enumerate(cold, start=1):
        torch.testing.assert_close(lapsum_topk(scores, k, 1e-3), torch.tensor([expected]).float())
        torch.testing.assert_close(lapsum_topk(scores, k, 1e6), torch.full((1, 5), k / 5), rtol=0, atol=1e-5)


@given(
    classes=st.integers(2, 40),
    share=st.floats(0, 1),
    spread=st.sampled_from([0.0, 0.1, 3.0, 30.0, 1000.0]),
    temperature=st.sampled_from([1e-4, 0.1, 1.0, 50.0]),
    offset=st.floats(-1000, 1000),
    seed=st.integers(0, 10_000),
)
def test_memberships_sum_to_k_and_keep_the_order(classes, share, spread, temperature, offset, seed):
    generator = torch.Generator().manual_seed(seed)
    k = 1 + int(share * (classes - 1))
    scores = (spread * torch.randn(3, classes, generator=generator) + offset).requires_grad_()
    p = lapsum_topk(scores, k, temperature)
    assert ((p >= 0) & (p <= 1)).all()
    torch.testing.assert_close(p.sum(1), torch.full((3,), float(k)), rtol=3e-6, atol=0)
    order = scores.detach().argsort(descending=True)
    assert (p.detach().gather(1, order).diff(dim=1) <= 0).all()
    (slope,) = torch.autograd.grad(p, scores, torch.randn(3, classes, generator=generator))
    assert slope.isfinite().all()
    assert (slope.sum(1).abs() <= 1e-6 * classes / temperature).all()


@pytest.mark.parametrize("spread", [0.0, 0.1, 3.0, 1000.0])
@pytest.mark.parametrize(("k", "temperature"), [(1, 30.0), (5, 1e-3), (60, 1.0), (99, 1e-3)])
def test_float32_agrees_with_float64_at_any_range_of_scores(k, spread, temperature, sample):
    scores, target = sample(30, 100, spread)
    scores = scores.float()
    soft = torch.nn.functional.one_hot(target, 100).float()
    leaf = scores.double().requires_grad_()
    exact = lapsum_topk_loss(leaf, target, k, temperature, reduction="none")
    (slope,) = torch.autograd.grad(exact.sum(), leaf)
    for labels in (target, soft):
        leaf = scores.clone().requires_grad_()
        losses = lapsum_topk_loss(leaf, labels, k, temperature, reduction="none")
        (gradient,) = torch.autograd.grad(losses.sum(), leaf)
        torch.testing.assert_close(losses.double(), exact, rtol=1e-6, atol=1e-7)
        torch.testing.assert_close(gradient.double(), slope, rtol=0, atol=1e-6 / temperature)
    p = lapsum_topk(scores, k, temperature).double()
    torch.testing.assert_close(p, lapsum_topk(scores.double(), k, temperature), rtol=0, atol=1e-6)


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
