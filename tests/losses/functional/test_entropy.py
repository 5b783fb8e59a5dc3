import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from topk_losses import functional
from topk_losses.testing import oracles


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(6, 5), (4, 5, 3), (2, 5, 3, 2)])
def test_cross_entropy_is_torchs(reduction, weighted, shape):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(shape, generator=generator, dtype=torch.float64)
    target = torch.randint(5, (shape[0], *shape[2:]), generator=generator)
    target[0] = 3
    soft = torch.rand(shape, generator=generator, dtype=torch.float64)
    weight = torch.rand(5, generator=generator, dtype=torch.float64) if weighted else None
    shared = {"weight": weight, "reduction": reduction}
    for labels, extra in ((target, {"ignore_index": 3}), (target, {}), (soft, {})):
        ours = functional.cross_entropy(scores, labels, **shared, **extra)
        theirs = torch.nn.functional.cross_entropy(scores, labels, **shared, **extra)
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("gamma", [0, 0.1, 0.5, 1, 2])
def test_focal_has_a_finite_gradient_where_the_probability_rounds_to_1(gamma):
    scores = torch.tensor([[200.0, 0.0], [50.0, 0.0], [9.0, 0.0], [-200.0, 0.0]], requires_grad=True)
    losses = functional.focal(scores, torch.zeros(4, dtype=torch.int64), gamma, reduction="none")
    losses.sum().backward()
    assert losses.isfinite().all()
    assert scores.grad.isfinite().all()


def test_generalized_tends_to_cross_entropy(sample):
    """``(1 - e^-γu) / γ`` lies below u by at most ``γ u² / 2``."""
    scores, target = sample(20, 6)
    entropy = functional.cross_entropy(scores, target, reduction="none")
    for gamma in (1e-2, 1e-4, 1e-6):
        below = entropy - functional.generalized_cross_entropy(scores, target, gamma, reduction="none")
        assert (below >= -1e-12).all()
        assert (below <= gamma * entropy**2 / 2 + 1e-9).all()


@given(st.floats(1e-9, 30, allow_nan=False), st.sampled_from([0.25, 1.0, 2.0, 5.0]))
def test_focal_of_a_small_entropy(gap, gamma):
    scores = torch.tensor([[gap, 0.0]], dtype=torch.float64)
    entropy = math.log1p(math.exp(-gap))
    expected = (-math.expm1(-entropy)) ** gamma * entropy
    value = functional.focal(scores, torch.tensor([0]), gamma).item()
    assert value == pytest.approx(expected, rel=1e-6, abs=1e-15)


@pytest.mark.parametrize("gap", [0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("soft", [False, True])
def test_ldam_keeps_its_precision_where_the_probability_rounds_to_1(gap, soft, rounding):
    """In float32 ``1 - p`` is 0 from a gap of 0.6 on at scale 30, yet a margin of 0.5 makes it count again."""
    scores, margins = torch.tensor([[gap, 0.0, -0.3]]), torch.full((3,), 0.5)
    target = torch.tensor([[1.0, 0.0, 0.0]]) if soft else torch.tensor([0])
    value = functional.ldam(scores, target, margins, scale=30.0)
    exact = oracles.ldam(scores[0].double(), 0, margins.double(), scale=30.0)
    # exp(-x) is as wrong in proportion as x, here 30 times a gap less a margin: three roundings, and some of the rest.
    x = 30 * (gap + 0.5 + 0.3)
    torch.testing.assert_close(value.double(), exact, rtol=rounding(x, x, x) + 1e-6, atol=0 if soft else 2e-7)
