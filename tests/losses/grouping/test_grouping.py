import pytest
import torch
from gradients import with_gradient

from topk_losses.functional import topk_grouping, topk_transition
from topk_losses.testing import oracles


def test_confident_scores_in_float32():
    """Far apart scores: finite, and right to float32's rounding of S."""
    scores = torch.tensor([[90.0, 0.0, -200.0, -300.0], [1000.0, 999.0, 400.0, 800.0]])
    for label in range(4):
        target = torch.full((2,), label)
        losses, gradient = with_gradient(
            lambda s, y=target: topk_transition(s, y, 2, reduction="none"), scores
        )
        expected = oracles.rowwise(oracles.topk_transition, scores.double() - scores[:, :1], target, k=2)
        torch.testing.assert_close(losses.double(), expected, rtol=1e-6, atol=3e-7)
        assert torch.isfinite(gradient).all()
        assert gradient.sum(1).abs().max() < 1e-6


@pytest.mark.parametrize("detach_weight", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_ignored_sample_with_no_class_after_the_k_best_has_no_gradient(dtype, detach_weight, plain_torch):
    """S is 1, class 0 stands for its label, and 0 times the infinite log q would be NaN."""
    scores, ignored = torch.full((1, 6), -torch.inf, dtype=dtype), torch.tensor([-100])
    scores[0, 5] = 0.7
    _, gradient = with_gradient(
        lambda s: topk_transition(s, ignored, 3, detach_weight, reduction="sum"), scores
    )
    assert gradient.abs().max() == 0


@pytest.mark.parametrize("name", ["topk_grouping", "topk_transition"])
def test_soft_targets_choose_the_group_by_the_scores(name, way):
    """Though their probabilities are equal in float32."""
    scores = torch.tensor([[1e-8, 2e-8, 0.0]])
    shares = torch.tensor([[0.0, 1.0, 0.0]])
    function = {"topk_grouping": topk_grouping, "topk_transition": topk_transition}[name]
    torch.testing.assert_close(function(scores, shares, k=1), function(scores, torch.tensor([1]), k=1))
    for label in range(3):
        one_hot = torch.nn.functional.one_hot(torch.tensor([label]), 3).float()
        of_label = function(scores, torch.tensor([label]), k=2)
        torch.testing.assert_close(function(scores, one_hot, k=2), of_label)
