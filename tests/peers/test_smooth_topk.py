"""What oval-group/smooth-topk, the code of Berrada et al. 2018, tests of its losses holds of ours.

Seven classes, Gaussian scores; their ``SmoothTopkSVM(n, alpha, tau, k)`` is ``SmoothTopKSVM(k, tau, margin=alpha)``,
their ``MaxTopkSVM(n, alpha, k)`` is ``TopKHinge(k, margin=alpha * k) / k``. Subsets are counted one by one here.
"""

import itertools
import math

import pytest
import torch

from topk_losses import SmoothTopKSVM, TopKHinge
from topk_losses.functional import smooth_topk_svm
from topk_losses.operators import log_elementary_symmetric

CLASSES = 7
SCALES = [10.0**power for power in range(-4, 4)]


@pytest.fixture
def rows():
    """Scores of twenty rows, float64, and labels."""
    source = torch.Generator().manual_seed(1234)
    scores = torch.randn(20, CLASSES, generator=source, dtype=torch.float64)
    return scores, torch.randint(CLASSES, (20,), generator=source)


def by_row(loss, scores, target):
    return torch.stack([loss(row, int(label)) for row, label in zip(scores, target, strict=True)])


def log_sum_over_subsets(values, k, wanted=lambda subset: True, extra=lambda subset: 0.0):
    """``log Σ exp(Σ_{j in S} v_j + extra(S))`` over the wanted subsets S of k classes."""
    subsets = [subset for subset in itertools.combinations(range(len(values)), k) if wanted(subset)]
    return torch.stack([values[list(subset)].sum() + extra(subset) for subset in subsets]).logsumexp(0)


def test_the_top_1_svm_is_the_most_violated_constraint(rows):
    """The label's own constraint, which has no margin, is never violated: the loss is at least 0."""

    def most_violated(row, label):
        margins = torch.ones(CLASSES, dtype=row.dtype)
        margins[label] = 0
        return (row + margins).max() - row[label]

    expected = by_row(most_violated, *rows)
    torch.testing.assert_close(TopKHinge(1)(*rows), expected.mean())


@pytest.mark.parametrize("k", [2, 3, 6])
def test_the_hard_top_k_svm_is_the_better_of_two_answers(k, rows):
    """The mean of the best K without the label and a margin, against that of the best K - 1 and the label."""

    def gap(row, label):
        others = row[[j for j in range(CLASSES) if j != label]].sort(descending=True).values
        without, with_label = others[:k].mean() + 1, (others[: k - 1].sum() + row[label]) / k
        return torch.maximum(without, with_label) - with_label

    torch.testing.assert_close(TopKHinge(k, margin=float(k))(*rows) / k, by_row(gap, *rows).mean())


@pytest.mark.parametrize("tau", [0.5, 2.0])
def test_the_smooth_top_1_svm_is_a_soft_maximum(tau, rows):
    def soft_maximum(row, label):
        violations = row - row[label] + (torch.arange(CLASSES) != label)
        return tau * (violations / tau).logsumexp(0)

    torch.testing.assert_close(SmoothTopKSVM(1, tau=tau)(*rows), by_row(soft_maximum, *rows).mean())


def smooth_over_all_subsets(row, label, k, tau):
    """Every K-subset, those without the label with a margin, against those with it."""
    values = row / (k * tau)
    every = log_sum_over_subsets(values, k, extra=lambda subset: 0.0 if label in subset else 1 / tau)
    return tau * (every - log_sum_over_subsets(values, k, lambda subset: label in subset))


def smooth_over_the_others(row, label, k, tau):
    """The same by the subsets of all classes but the label."""
    others = torch.cat([row[:label], row[label + 1 :]]) / (k * tau)
    ratio = log_sum_over_subsets(others, k) - log_sum_over_subsets(others, k - 1)
    return tau * torch.nn.functional.softplus(ratio - row[label] / (k * tau) + 1 / tau)


@pytest.mark.parametrize("k", [2, 3, 4, 5])
@pytest.mark.parametrize("formula", [smooth_over_all_subsets, smooth_over_the_others])
def test_the_smooth_top_k_svm_by_both_of_its_formulas(k, formula, rows):
    scores, target = rows[0][:8], rows[1][:8]
    result = smooth_topk_svm(scores, target, k, 2.0, reduction="none")
    expected = by_row(lambda row, label: formula(row, label, k, 2.0), scores, target)
    torch.testing.assert_close(result, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("scale", SCALES)
def test_whatever_the_scale_of_the_scores(scale, rows):
    """In float32 as well: theirs is held to 1e-4, ours to 1e-5, or to 1e-6 of τ where the loss is near 0."""
    scores, target = (scale * rows[0][:4]).float(), rows[1][:4]
    expected = by_row(lambda row, label: smooth_over_all_subsets(row, label, 5, 2.0), scores.double(), target)
    result = smooth_topk_svm(scores, target, 5, 2.0, reduction="none")
    torch.testing.assert_close(result.double(), expected, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("scale", [1e-4, 1.0, 100.0])
@pytest.mark.parametrize("k", [2, 5])
def test_gradients_whatever_the_scale_of_the_scores(k, scale, rows):
    scores, target = (scale * rows[0][:2]).requires_grad_(), rows[1][:2]
    assert torch.autograd.gradcheck(lambda s: smooth_topk_svm(s, target, k, 2.0), scores)


def test_sums_of_products_over_subsets():
    """Over K - 1 and over K of 10 classes, in logarithms."""
    source = torch.Generator().manual_seed(7)
    scores = torch.randn(3, 10, generator=source, dtype=torch.float64)
    for k in (6, 7):
        expected = torch.stack([log_sum_over_subsets(row, k) for row in scores])
        torch.testing.assert_close(log_elementary_symmetric(scores, k), expected)


def test_equal_scores_by_counting():
    """L equal scores: ``log(1 + e^(1/τ) (L - K) / K)``, since as many more subsets are without the label."""
    expected = 2 * math.log1p(math.exp(0.5) * (CLASSES - 3) / 3)
    result = smooth_topk_svm(torch.zeros(1, CLASSES), torch.tensor([4]), 3, 2.0)
    assert result.item() == pytest.approx(expected, rel=1e-6)
