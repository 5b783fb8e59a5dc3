"""Losses against wrong labels: against their definitions, their special cases, and what makes them robust."""

import math

import pytest
import torch

from topk_losses import functional

CASES = {
    **{f"label_smoothing-{epsilon}": {"epsilon": epsilon} for epsilon in (0.0, 0.3)},
    "mean_absolute_error": {},
    "symmetric_cross_entropy": {"alpha": 0.7, "beta": 0.2},
    **{
        f"active_passive_loss-{one}": {"alpha": 2.0, "beta": 0.5, "passive": one}
        for one in ("mae", "rce", "nnce")
    },
    "asymmetric_loss-agce": {"form": "agce", "a": 1.8, "q": 3.0},
    "asymmetric_loss-aul": {"form": "aul", "a": 6.0, "q": 3.0, "alpha": 10.0, "beta": 0.015},
    "asymmetric_loss-ael": {"form": "ael", "a": 1.5, "alpha": 1.0},
    **{f"logit_clip-{limit}": {"limit": limit} for limit in (0.5, 6.0, 100.0)},
}
BOUNDED = {
    "mean_absolute_error": lambda s, y: functional.mean_absolute_error(s, y, reduction="none"),
    "nce": lambda s, y: functional.active_passive_loss(s, y, beta=0.0, reduction="none"),
    "nnce": lambda s, y: functional.active_passive_loss(s, y, alpha=0.0, passive="nnce", reduction="none"),
}


@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradient_are_those_of_the_definition(case, assert_matches_oracle):
    assert_matches_oracle(case.partition("-")[0], classes=8, parameters=CASES[case])


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


def test_relatives(sample):
    scores, target = sample(20, 6)
    cross_entropy = functional.cross_entropy(scores, target)
    error = functional.mean_absolute_error(scores, target)
    assert torch.equal(error, functional.generalized_cross_entropy(scores, target, 1.0))
    for ours, theirs in (
        (functional.label_smoothing(scores, target, 0.0), cross_entropy),
        (
            functional.label_smoothing(scores, target, 0.2),
            torch.nn.functional.cross_entropy(scores, target, label_smoothing=0.2),
        ),
        (functional.symmetric_cross_entropy(scores, target, 1.0, 0.0), cross_entropy),
        (functional.active_passive_loss(scores, target, 0.0, 1.0, "rce"), 4 * math.log(10) * error),
        (functional.asymmetric_loss(scores, target, "agce", 3.0, 1.0), error),
        (functional.logit_clip(scores, target, 1e6), cross_entropy),
    ):
        torch.testing.assert_close(ours, theirs)


def test_label_smoothing_gives_masked_classes_no_share(sample):
    scores, target = sample(5, 6)
    masked = torch.cat([scores, torch.full((5, 2), -torch.inf)], 1)
    torch.testing.assert_close(
        functional.label_smoothing(masked, target, 0.4), functional.label_smoothing(scores, target, 0.4)
    )


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
