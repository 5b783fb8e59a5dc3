"""The exact expectation of long rows on the CPU, against adaptive quadrature, finer grids and Monte Carlo.

By torch alone, and by Numba's kernels if it is there, which have a test file of their own besides.
"""

import functools

import pytest
import torch

from topk_losses import use_backend
from topk_losses._core import numba
from topk_losses._expected import quadrature
from topk_losses.functional import expected_topk
from topk_losses.testing import oracles


@pytest.fixture(autouse=True, params=["torch", "numba"], scope="module")
def path(request):
    """What computes the expectation."""
    if request.param == "numba" and not numba.is_there():
        pytest.skip("needs Numba")
    with use_backend(request.param):
        yield request.param


def value_and_gradient(row, k, epsilon):
    leaf = row.clone().requires_grad_()
    value = expected_topk(leaf, k, epsilon)
    return value.detach(), torch.autograd.grad(value.sum(), leaf)[0]


def some_row(spread, classes=200):
    generator = torch.Generator().manual_seed(3)
    return spread * torch.randn(classes, generator=generator, dtype=torch.float64)


@functools.cache
def exact_value_and_gradient(row, k):
    """The oracle's for a tuple of scores and ε = 1, once for both paths."""
    leaf = torch.tensor(row, dtype=torch.float64, requires_grad=True)
    value = oracles.expected_topk(leaf, k, 1.0)
    value.backward()
    return value.detach(), leaf.grad


def assert_promised(row, k, rounding):
    """1e-8 for float64 scores, 1e-6 for float32 ones, and what float32 makes of the scores and of the value.

    The slopes sum to 1, so that the value moves by no more than the scores do. It is made of the largest score and of
    the distance from it.
    """
    exact, slope = exact_value_and_gradient(tuple(row.tolist()), k)
    largest = row.max()
    rounded = rounding(row.abs().max(), exact - largest, exact).item()
    for dtype, error, further in ((torch.float64, 1e-8, 0), (torch.float32, 1e-6, rounded)):
        value, gradient = value_and_gradient(row.to(dtype), k, 1.0)
        torch.testing.assert_close(value.double(), exact, rtol=0, atol=error + further)
        torch.testing.assert_close(gradient.double(), slope, rtol=0, atol=error)


@pytest.mark.parametrize("spread", [0.0, 0.3, 3.0, 30.0])
@pytest.mark.parametrize("k", [1, 2, 6, 25])
def test_value_and_gradient_are_those_of_the_oracle(k, spread):
    row = some_row(spread)
    for result, exact in zip(
        value_and_gradient(row, k, 1.0), exact_value_and_gradient(tuple(row.tolist()), k), strict=True
    ):
        torch.testing.assert_close(result, exact, rtol=0, atol=1e-8)


@pytest.mark.parametrize("k", [1, 2, 16])
@pytest.mark.parametrize("near", [1, 3])
def test_crowds_that_a_sample_misjudges(k, near, rounding):
    """Of every eight classes one stands for all in the search for the window: here far too high."""
    row = torch.full((400,), -7.0, dtype=torch.float64)
    row[: 4 * k] = -torch.linspace(0, 2, 4 * k)
    row[4 * k : 4 * k + near] = -2.0
    assert_promised(row, k, rounding)


@pytest.mark.parametrize("k", [1, 6, 16])
@pytest.mark.parametrize("spread", [0.0, 0.3, 3.0])
def test_crowds_by_power_sums_are_those_swept(k, spread, path, monkeypatch, rounding):
    if path == "numba":
        pytest.skip("of the crowds in torch")
    rows = torch.stack([some_row(spread, 300), some_row(0.5 * spread, 300)])
    for dtype, error in ((torch.float64, 2e-9), (torch.float32, 1e-6)):
        value, gradient = value_and_gradient(rows.to(dtype), k, 1.0)
        with monkeypatch.context() as patch:
            patch.setattr(quadrature, "LARGEST_RANK", 0)
            swept, slope = value_and_gradient(rows.to(dtype), k, 1.0)
        rounded = 2 * rounding(swept - rows.amax(1), swept)  # of both values
        assert ((value - swept).abs() <= error + (rounded if dtype == torch.float32 else 0)).all()
        torch.testing.assert_close(gradient, slope, rtol=0, atol=error)
