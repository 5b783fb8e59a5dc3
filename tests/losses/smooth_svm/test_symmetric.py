import math

import pytest
import torch
from gradients import with_gradient
from hypothesis import given
from hypothesis import strategies as st

from topk_losses._smooth_svm.symmetric import log_symmetric_table
from topk_losses.operators import inclusion_probabilities, log_elementary_symmetric
from topk_losses.testing import oracles
from topk_losses.testing.symmetric import log_inclusion


@pytest.mark.parametrize("classes", [1, 2, 5, 9])
def test_every_k_is_the_sum_over_all_subsets(classes, sample):
    values = sample(3, classes, 3.0)[0]
    for k in range(1, classes + 1):
        expected = torch.stack([oracles.log_elementary_symmetric(row, k) for row in values])
        result, slope = with_gradient(lambda s, k=k: log_elementary_symmetric(s, k), values)
        torch.testing.assert_close(result, expected, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(slope, inclusion_probabilities(values, k))
        expected = torch.stack([oracles.inclusion_probabilities(row, k, 0.7) for row in values])
        torch.testing.assert_close(inclusion_probabilities(values, k, 0.7), expected, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("spread", [0.0, 0.1, 3.0, 30.0, 1000.0])
@pytest.mark.parametrize("k", [1, 5, 50])
def test_many_classes_of_any_range(k, spread, sample):
    values = sample(4, 300, spread)[0] + 700
    table, chances, _ = log_inclusion(values, k)
    torch.testing.assert_close(log_elementary_symmetric(values, k), table[:, k], rtol=1e-12, atol=0)
    result = inclusion_probabilities(values, k)
    # The reference's own logarithms are as large as 1e6, which rounding leaves uncertain by about 1e-10.
    torch.testing.assert_close(result, chances, rtol=0, atol=1e-12 + 1e-13 * table.abs().max().item())
    torch.testing.assert_close(result.sum(1), torch.full((4,), float(k), dtype=torch.float64))
    assert result.min() >= 0
    assert result.max() <= 1 + 1e-12


def test_of_too_few_classes_all_that_are_not_masked_are_in(sample):
    values = sample(3, 20)[0]
    masked = torch.cat([values, torch.full((3, 5), -torch.inf, dtype=torch.float64)], 1)
    assert (log_elementary_symmetric(masked, 21) == -torch.inf).all()
    torch.testing.assert_close(
        inclusion_probabilities(masked, 21)[:, :20], torch.ones(3, 20, dtype=torch.float64)
    )


def test_a_k_whose_polynomials_would_overflow():
    values = torch.zeros(1100, dtype=torch.float64)
    expected = math.lgamma(1101) - 2 * math.lgamma(551)
    assert log_elementary_symmetric(values, 550).item() == pytest.approx(expected, rel=1e-12)


@given(
    classes=st.integers(1, 60), share=st.floats(0, 1), shift=st.floats(-500, 500), seed=st.integers(0, 10_000)
)
def test_a_common_factor_and_an_order(classes, share, shift, seed):
    generator = torch.Generator().manual_seed(seed)
    k = 1 + int(share * (classes - 1))
    values = 4 * torch.randn(2, classes, generator=generator, dtype=torch.float64)
    order = torch.randperm(classes, generator=generator)
    base, chances = log_elementary_symmetric(values, k), inclusion_probabilities(values, k)
    torch.testing.assert_close(
        log_elementary_symmetric(values + shift, k), base + k * shift, rtol=1e-12, atol=1e-10
    )
    torch.testing.assert_close(
        inclusion_probabilities(values[:, order], k), chances[:, order], rtol=0, atol=1e-12
    )
    torch.testing.assert_close(log_symmetric_table(values, k)[:, k], base, rtol=1e-12, atol=1e-12)
