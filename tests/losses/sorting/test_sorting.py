import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from topk_losses.functional import sorting_topk_cross_entropy
from topk_losses.testing import oracles


@pytest.mark.parametrize("candidates", [32, 64])
def test_large_networks(candidates, sample):
    scores, target = sample(2, 50, 3.0)
    parameters = {"k": 7, "candidates": candidates}
    losses = sorting_topk_cross_entropy(scores, target, **parameters, reduction="none")
    expected = oracles.rowwise(oracles.sorting_topk_cross_entropy, scores, target, **parameters)
    torch.testing.assert_close(losses, expected)


@pytest.mark.parametrize("relaxation", ["cauchy", "logistic"])
@pytest.mark.parametrize("classes", [5, 20])
def test_derivatives(relaxation, classes, sample):
    scores, target = sample(2, classes, 1.0)
    scores.requires_grad_()

    def loss(s):
        return sorting_topk_cross_entropy(
            s, target, 3, candidates=8, relaxation=relaxation, mixture=[0.3, 0, 0.7], reduction="none"
        )

    assert torch.autograd.gradcheck(loss, scores)
    assert torch.autograd.gradgradcheck(loss, scores)


@pytest.mark.parametrize("relaxation", ["cauchy", "logistic"])
def test_steep_networks_sort(relaxation, sample):
    """The loss tends to 0 for targets among the K best, and to infinity for all others."""
    scores, target = sample(200, 40, 10.0)
    rank = (scores > scores.gather(1, target[:, None])).sum(1)
    assert len(rank.unique()) > 30
    for k in (2, 3, 8):
        losses = sorting_topk_cross_entropy(
            scores, target, k, steepness=1e6, relaxation=relaxation, reduction="none"
        )
        assert torch.equal(losses < 0.01, rank < k)


@pytest.mark.parametrize("relaxation", ["cauchy", "logistic"])
@pytest.mark.parametrize("k", [2, 3, 7])
def test_equal_scores_make_every_rank_equally_likely(relaxation, k):
    for candidates in (8, 16):
        loss = sorting_topk_cross_entropy(
            torch.full((1, 30), 4.0), torch.tensor([3]), k, candidates=candidates, relaxation=relaxation
        )
        assert loss.item() == pytest.approx(math.log(candidates / k))


def test_three_wires_by_hand():
    """The scores 1/2 (the target), 1/2 and 0, and nothing on the fourth wire; β = 2."""
    scores = torch.tensor([[0.5, 0.5, 0.0]], dtype=torch.float64)
    # First 1/2 meets 1/2 (the target is on each with 1/2), 0 meets nothing; then the second wire meets 0 and the first
    # nothing. The target is still on the first with 1/2, and on the second if it was there and stayed.
    stay = 0.5 + math.atan(2 * 0.5) / math.pi
    loss = sorting_topk_cross_entropy(scores, torch.tensor([0]), 2, candidates=4)
    assert loss.item() == pytest.approx(-math.log(0.5 + 0.5 * stay))


def test_two_classes_are_always_among_the_two_best():
    scores = torch.tensor([[0.3, 1.0, -torch.inf, -torch.inf]])
    assert sorting_topk_cross_entropy(scores, torch.tensor([0]), 2, candidates=4) == 0


@given(
    classes=st.integers(3, 24),
    seed=st.integers(0, 10_000),
    spread=st.sampled_from([0.1, 2.0, 30.0]),
    relaxation=st.sampled_from(["cauchy", "logistic"]),
    data=st.data(),
)
def test_larger_k_never_costs_more(classes, seed, spread, relaxation, data):
    """And a class behind the candidates has no part."""
    generator = torch.Generator().manual_seed(seed)
    scores = spread * torch.randn(4, classes, generator=generator, dtype=torch.float64)
    target = torch.randint(classes, (4,), generator=generator)
    k = data.draw(st.integers(2, min(classes - 1, 7)))

    def loss(s, k):
        return sorting_topk_cross_entropy(s, target, k, candidates=8, relaxation=relaxation, reduction="none")

    losses = loss(scores, k)
    if k > 2:
        assert (losses <= loss(scores, k - 1) + 1e-9).all()
    last = torch.full((4, 3), scores.min().item() - 1, dtype=torch.float64)
    if classes >= 8:
        torch.testing.assert_close(loss(torch.cat([scores, last], 1), k), losses)
