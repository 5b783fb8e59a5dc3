import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from topk_losses.functional import noised_topk
from topk_losses.testing import oracles

PAPER_SCORES = [2.4, 2.6, 2.3, 0.5]
PAPER_NOISE = [[0.2, -0.1, 0.1, 0.3], [0.1, 0.1, -0.1, 0.1], [-0.1, -0.1, 0.1, -0.1]]


@pytest.mark.parametrize(
    ("epsilon", "value", "gradient"),
    [(1.0, 7.4 / 3, [1 / 3, 1 / 3, 1 / 3, 0]), (0.1, 2.4 + 0.02 / 3, [1, 0, 0, 0]), (0.0, 2.4, [1, 0, 0, 0])],
)
def test_worked_example_of_the_paper(epsilon, value, gradient):
    """Garcin et al. 2022, section 3.2; at ε = 0.1 the noise no longer changes the second largest."""
    scores = torch.tensor(PAPER_SCORES, dtype=torch.float64, requires_grad=True)
    result = noised_topk(scores, 2, epsilon, 3, noise=torch.tensor(PAPER_NOISE, dtype=torch.float64))
    result.backward()
    assert result.item() == pytest.approx(value, abs=1e-12)
    assert scores.grad.tolist() == pytest.approx(gradient)


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
