import math

import pytest
import torch
from gradients import with_gradient
from hypothesis import given
from hypothesis import strategies as st

from topk_losses.functional import expected_topk, noised_topk
from topk_losses.testing import oracles

PAPER_SCORES = [2.4, 2.6, 2.3, 0.5]
PAPER_NOISE = [[0.2, -0.1, 0.1, 0.3], [0.1, 0.1, -0.1, 0.1], [-0.1, -0.1, 0.1, -0.1]]


@pytest.mark.parametrize(
    ("epsilon", "value", "gradient"),
    [(1.0, 7.4 / 3, [1 / 3, 1 / 3, 1 / 3, 0]), (0.1, 2.4 + 0.02 / 3, [1, 0, 0, 0]), (0.0, 2.4, [1, 0, 0, 0])],
)
def test_worked_example_of_the_paper(epsilon, value, gradient):
    """Garcin et al. 2022, section 3.2; at ε = 0.1 the noise no longer changes the second largest."""
    scores, noise = (torch.tensor(given, dtype=torch.float64) for given in (PAPER_SCORES, PAPER_NOISE))
    result, slopes = with_gradient(lambda s: noised_topk(s, 2, epsilon, 3, noise=noise), scores)
    assert result.item() == pytest.approx(value, abs=1e-12)
    assert slopes.tolist() == pytest.approx(gradient)


@given(data=st.data(), classes=st.integers(1, 7), seed=st.integers(0, 2**20))
def test_value_is_the_mean_over_the_draws(data, classes, seed):
    k = data.draw(st.integers(1, classes))
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(3, classes, generator=generator, dtype=torch.float64)
    noise = torch.randn(4, 3, classes, generator=generator, dtype=torch.float64)
    value = noised_topk(scores, k, 0.7, 4, noise=noise)
    expected = [oracles.noised_topk(row, k, 0.7, noise[:, n]) for n, row in enumerate(scores)]
    torch.testing.assert_close(value, torch.stack(expected))


def test_second_derivative_is_0():
    """Of the squares of w only the derivative of the squares is left: ``d²/dw² = 2·(share of the draws)``."""
    w = torch.rand(4, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    noise = torch.randn(3, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    (slope,) = torch.autograd.grad(noised_topk(w * w, 2, 0.5, 3, noise=noise), w, create_graph=True)
    (second,) = torch.autograd.grad(slope.sum(), w)
    torch.testing.assert_close(second, slope.detach() / w.detach())
    assert torch.autograd.gradgradcheck(lambda s: noised_topk(s, 2, 0.5, 3, noise=noise), w)


def test_value_and_gradient_are_unbiased():
    """20,000 draws: each mean lies within 5 standard errors of the exact one.

    With 24 comparisons a right operator fails for one seed in 70,000.
    """
    draws = 20_000
    generator = torch.Generator().manual_seed(0)
    scores = torch.tensor([[0.3, -0.2, 0.1, 0.9, -1.0, 0.4]], dtype=torch.float64)
    for k in (1, 3, 6):
        noise = torch.randn(draws, 1, 6, generator=generator, dtype=torch.float64)
        noised, slopes = with_gradient(lambda s, k=k, z=noise: noised_topk(s, k, 0.5, draws, noise=z), scores)
        truth, p = with_gradient(lambda s, k=k: expected_topk(s, k, 0.5), scores)
        spread = (scores + 0.5 * noise).sort(descending=True).values[..., k - 1].std()
        assert abs(noised - truth) < 5 * spread / math.sqrt(draws)
        assert (abs(slopes - p) < 5 * (p * (1 - p) / draws).sqrt() + 1e-3 / draws).all()
