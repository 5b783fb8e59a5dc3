"""Losses against wrong labels: against their definitions, their special cases, and what makes them robust."""

import math

import pytest
import torch

from topk_losses import functional

BOUNDED = {
    "mean_absolute_error": lambda s, y: functional.mean_absolute_error(s, y, reduction="none"),
    "nce": lambda s, y: functional.active_passive_loss(s, y, beta=0.0, reduction="none"),
    "nnce": lambda s, y: functional.active_passive_loss(s, y, alpha=0.0, passive="nnce", reduction="none"),
}


def test_negative_losses_take_no_log_probability_below_their_floor(assert_matches_oracle, sample):
    scores, target = sample(6, 5, 40.0)
    loss = functional.active_passive_loss(scores, target, 0.0, 1.0, "nnce", reduction="none")
    heights = (scores.log_softmax(1) - math.log(1e-7)).clamp(min=0)
    expected = 1 - heights.gather(1, target[:, None]).squeeze(1) / heights.sum(1)
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize("name", BOUNDED)
def test_the_sum_over_all_labels_is_the_same_for_all_scores(name, sample):
    """That is what makes them robust to evenly spread wrong labels (Ghosh et al. 2017)."""
    scores, _ = sample(30, 6, 5.0)
    total = sum(BOUNDED[name](scores, torch.full((30,), label)) for label in range(6))
    constant = {"mean_absolute_error": 5.0, "nce": 1.0, "nnce": 5.0}[name]
    torch.testing.assert_close(total, torch.full((30,), constant, dtype=total.dtype))


def test_asymmetric_losses_at_their_ends():
    """From the label's probability 0 to 1; AGCE and AUL end at 0."""
    scores = torch.tensor([[-800.0, 0.0], [800.0, 0.0]], dtype=torch.float64)
    target = torch.tensor([0, 0])
    ends = {
        ("agce", 0.6, 0.6): ((1.6**0.6 - 0.6**0.6) / 0.6, 0.0),
        ("aul", 5.5, 3.0): ((5.5**3 - 4.5**3) / 3, 0.0),
        ("ael", 2.5, 1.0): (1.0, math.exp(-1 / 2.5)),
    }
    for (form, a, q), expected in ends.items():
        losses = functional.asymmetric_loss(scores, target, form, a, q, reduction="none")
        assert losses.tolist() == pytest.approx(expected)


@pytest.mark.parametrize("size", [1e-30, 1e5, 1e30])
def test_clipped_scores_of_any_size(size):
    """A row as long as the limit whatever its size, and a row of zeros, with finite gradients."""
    scores = torch.tensor([[3.0, -4.0, 0.0], [0.0, 0.0, 0.0]]) * size
    leaf = scores.requires_grad_()
    losses = functional.logit_clip(leaf, torch.tensor([1, 0]), 1.0, reduction="none")
    losses.sum().backward()
    short = torch.tensor([[0.6, -0.8, 0.0], [0.0, 0.0, 0.0]]) if size > 1 else torch.zeros(2, 3)
    expected = functional.cross_entropy(short, torch.tensor([1, 0]), reduction="none")
    torch.testing.assert_close(losses, expected)
    assert leaf.grad.isfinite().all()
