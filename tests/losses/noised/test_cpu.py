"""The noised operator and hinge as Numba compiles them; ``test_draws.py`` has their distribution."""

from functools import partial

import pytest
import torch
from gradients import with_gradient
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from topk_losses import functional
from topk_losses._noised import cpu
from topk_losses._noised.draws import noised_draws
from topk_losses.functional import noised_topk, noised_topk_hinge


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def batch(rows=12, classes=100, spread=1.0, dtype=torch.float32):
    source = generator(3)
    scores = spread * torch.randn(rows, classes, generator=source, dtype=dtype)
    return scores, torch.randint(classes, (rows,), generator=source)


def composed(scores, target, k, margin=1.0, **noise):
    """The hinge from the operator of the same draws."""
    top = noised_topk(scores, k + 1, **noise)
    own = scores.gather(1, target.unsqueeze(1)).squeeze(1)
    return (top - own + margin).relu()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("samples", "classes"), [(1, 10), (10, 100), (70, 300)])
def test_hinge_and_gradient_are_those_of_the_operator(samples, classes, dtype):
    scores, target = batch(200, classes, dtype=dtype)
    weights, drawn = torch.arange(200) / 200, {"samples": samples, "epsilon": 0.3}

    def evaluate(loss):
        return with_gradient(lambda s: weights * loss(s, target, 4, generator=generator(), **drawn), scores)

    ours, theirs = evaluate(partial(noised_topk_hinge, reduction="none")), evaluate(composed)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    assert ours[1].sum(1).abs().max() < 1e-6


def test_margins_weights_and_ignored_labels():
    scores, target = batch()
    target[3] = -100
    margins, weight = (torch.rand(100, generator=generator(s)).requires_grad_() for s in (1, 2))
    kept = target != -100
    labels = target.clamp(0)
    losses = composed(scores, labels, 5, margins[labels], epsilon=0.2, samples=7, generator=generator())
    shares = weight[labels] * kept
    expected = (losses * shares).sum() / shares.sum()
    value = noised_topk_hinge(
        scores, target, 5, 0.2, 7, margins, generator=generator(), weight=weight.detach()
    )
    torch.testing.assert_close(value, expected.detach())
    slopes = [torch.autograd.grad(x, margins)[0] for x in (value, expected)]
    torch.testing.assert_close(*slopes)
    ignored = torch.full_like(target, -100)
    losses, slopes = with_gradient(lambda s: noised_topk_hinge(s, ignored, 5, reduction="none"), scores)
    assert not losses.any() and not slopes.any()


def test_odd_rows():
    scores, target = batch(6, 64)
    scores[0, 5], scores[1, 5], scores[2, 3:] = torch.nan, torch.inf, -torch.inf
    scores[3, target[3]] = -torch.inf
    scores[4] = scores[4].masked_fill(torch.arange(64) % 8 > 0, -torch.inf)  # in few of the groups
    target[2], target[4] = 1, 8
    leaf = scores.requires_grad_()
    losses = noised_topk_hinge(leaf, target, 3, 0.2, 10, generator=generator(), reduction="none")
    assert losses[:2].isnan().all()
    assert losses[2] == 0  # fewer than K + 1 classes are left
    assert losses[3] == torch.inf
    assert losses[4:].isfinite().all()
    losses[4:].sum().backward()
    assert leaf.grad[:2].isnan().any(1).all()
    assert not leaf.grad[2:4].any()
    assert not leaf.grad[4][leaf.detach()[4] == -torch.inf].any()
    assert noised_topk(leaf.detach()[4:5], 3, 0.2, 10).isfinite().all()


@pytest.mark.parametrize("classes", [20, 70, 300])  # whole rows, and rows with thinned bins
@pytest.mark.parametrize("spread", [0.05, 0.5, 3.0])
def test_many_draws_of_a_row_are_distributed_as_they_should(classes, spread):
    """Of 150 draws in three blocks that go on from each other: χ² at 1e-5, so one seed in 10,000 would fail."""
    row = spread * torch.randn(1, classes, generator=generator(classes))
    draws = noised_draws(row.repeat(100, 1), 5, 0.25, 150, generator=generator(1))
    _, shares = with_gradient(lambda s: functional.expected_topk(s, 5, 0.25), row.double())
    expected = shares[0] * draws.classes.numel()
    counts = draws.classes.flatten().bincount(minlength=classes).double()
    common = expected >= 5
    observed, predicted = (torch.cat([x[common], x[~common].sum()[None]]) for x in (counts, expected))
    statistic = ((observed - predicted).square() / predicted.clamp(min=5)).sum().item()
    assert stats.chi2.sf(statistic, int(common.sum())) > 1e-5


@given(
    classes=st.integers(2, 150),
    data=st.data(),
    rows=st.integers(1, 5),
    spread=st.sampled_from([1e-3, 1.0, 1e4]),
    offset=st.sampled_from([0.0, -1000.0]),
    seed=st.integers(0, 1000),
)
def test_with_next_to_no_noise_it_is_the_kth_largest(classes, data, rows, spread, offset, seed):
    k = data.draw(st.integers(1, min(classes, cpu.MOST_K)))
    order = torch.rand(rows, classes, generator=generator(seed)).argsort(1)
    scores = offset + spread * order.double()
    masked = torch.rand(scores.shape, generator=generator(seed + 1)) < 0.2
    masked &= (scores < scores.topk(k).values[:, -1:]).bool()
    draws = noised_draws(scores.masked_fill(masked, -torch.inf), k, 1e-9, 3, generator=generator(seed))
    assert torch.equal(draws.classes, scores.topk(k).indices[:, -1:].expand(-1, 3))
    assert draws.noise.abs().max() < 1e-7


def test_without_numba_torch_draws(plain_torch, monkeypatch):
    monkeypatch.setattr(cpu, "draw", lambda *_: pytest.fail("a kernel was called"))
    scores, target = batch()
    assert noised_topk_hinge(scores, target, 3).isfinite()
    assert functional.noised_topk(scores, 3, 0.2, 5).isfinite().all()
