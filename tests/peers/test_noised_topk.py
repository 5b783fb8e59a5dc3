"""What garcinc/noised-topk, the code of Garcin et al. 2022, says of its losses and of its operator holds of ours.

It has no tests: these are its definitions and the properties that its examples show. Their noise is ``(N, L, B)`` where
ours is ``(B, N, L)``; ``BalNoisedTopK(k, epsilon, B)`` is ``NoisedTopKHinge(k, epsilon, B)``, and ``ImbalNoisedTopK(k,
epsilon, max_m, counts, scale, B)`` has the margins ``uneven_margins(counts, max_m)``.
"""

import pytest
import torch

from topk_losses.functional import noised_imbalanced_topk_hinge, noised_topk_hinge, uneven_margins
from topk_losses.operators import noised_topk

SAMPLES = 5


@pytest.fixture
def drawn():
    """Scores ``(6, 9)``, labels and noise ``(5, 6, 9)``, float64."""
    source = torch.Generator().manual_seed(3)
    scores = torch.randn(6, 9, generator=source, dtype=torch.float64)
    noise = torch.randn(SAMPLES, 6, 9, generator=source, dtype=torch.float64)
    return scores, torch.randint(9, (6,), generator=source), noise


def mean_of_kth(scores, noise, k, epsilon):
    """By sorting each noisy copy."""
    copies = (scores + epsilon * noise).sort(dim=-1, descending=True).values
    return copies[..., k - 1].mean(0)


@pytest.mark.parametrize("k", [1, 3, 9])
def test_the_operator_is_the_mean_of_sorted_copies(k, drawn):
    scores, _, noise = drawn
    result = noised_topk(scores, k, 1.0, SAMPLES, noise)
    torch.testing.assert_close(result, mean_of_kth(scores, noise, k, 1.0))


def test_next_to_no_noise_is_the_kth_largest(drawn):
    scores, _, noise = drawn
    exact = scores.topk(3).values[:, 2]
    torch.testing.assert_close(noised_topk(scores, 3, 1e-12, SAMPLES, noise), exact)


def test_the_operators_gradient_counts_draws(drawn):
    """Fifths that sum to 1, as the example's 0.4 and 0.6: the class that was the k-th largest gets a draw's share."""
    scores, _, noise = drawn
    leaf = scores.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(noised_topk(leaf, 3, 1.0, SAMPLES, noise).sum(), leaf)
    places = (scores + noise).argsort(dim=-1, descending=True)[..., 2]
    expected = torch.nn.functional.one_hot(places, 9).double().mean(0)
    torch.testing.assert_close(gradient, expected)
    torch.testing.assert_close((SAMPLES * gradient).round(), SAMPLES * gradient)


def test_the_balanced_loss(drawn):
    scores, target, noise = drawn
    own = scores.gather(1, target[:, None]).squeeze(1)
    expected = (1 + mean_of_kth(scores, noise, 3, 0.7) - own).relu()  # k = 2: the third largest
    result = noised_topk_hinge(scores, target, 2, 0.7, SAMPLES, noise=noise)
    torch.testing.assert_close(result, expected.mean())


def test_the_balanced_loss_of_the_example():
    """The README's scores and labels, next to no noise: the third of three scores is -3.0, and the label's -1.5."""
    scores, target = torch.tensor([[2.0, 1.5, -3.0], [7.5, 4.0, -1.5]]), torch.tensor([0, 2])
    losses = noised_topk_hinge(scores, target, 2, 1e-9, SAMPLES, reduction="none")
    torch.testing.assert_close(losses, torch.tensor([0.0, 1.0]))


def test_the_imbalanced_loss(drawn):
    """The rarest class has the largest margin, the others less by the fourth root of their counts' ratio."""
    scores, target, noise = drawn
    counts = torch.tensor([17, 23, 55, 5, 80, 160, 9, 31, 7])
    margins = uneven_margins(counts, 0.3)
    torch.testing.assert_close(margins, 0.3 * (5 / counts) ** 0.25)
    own = scores.gather(1, target[:, None]).squeeze(1)
    above = margins[target].double() + mean_of_kth(scores, noise, 3, 0.05) - own
    expected = (50 * above).relu().mean()
    result = noised_imbalanced_topk_hinge(scores, target, 2, margins, 0.05, SAMPLES, 50.0, noise=noise)
    torch.testing.assert_close(result, expected, rtol=1e-6, atol=0)
