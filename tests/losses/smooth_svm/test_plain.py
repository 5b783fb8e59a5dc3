import math

import pytest
import torch
from gradients import with_gradient
from hypothesis import given
from hypothesis import strategies as st

from topk_losses import functional
from topk_losses._smooth_svm import plain
from topk_losses._smooth_svm.arguments import Problem, rows_argument
from topk_losses._smooth_svm.plain import PlainSmoothSVM
from topk_losses._smooth_svm.symmetric import enough_powers, newton
from topk_losses.functional import smooth_topk_svm
from topk_losses.testing.symmetric import smooth_topk_svm_rows

TEMPERATURES = (1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0)


def losses_and_gradient(scores, target, k, tau, adaptive=True):
    rule = PlainSmoothSVM(k, tau)
    if adaptive:
        losses, kept = rule.forward(scores, target[:, None], 1.0, with_gradient=True)
    else:
        argument, slope = rows_argument(scores, target[:, None], 1.0, Problem(k, tau, False, True))
        losses = (-tau * torch.nn.functional.logsigmoid(-argument)).to(scores.dtype)
        kept = [argument.sigmoid(), *slope]
    return losses, rule.backward(torch.ones_like(losses), scores, target[:, None], kept)[0]


def assert_precise(losses, gradient, expected, expected_gradient, tau):
    assert torch.isfinite(losses).all()
    assert torch.isfinite(gradient).all()
    error = (losses.double() - expected).abs()
    assert (error <= torch.maximum(1e-5 * expected, torch.as_tensor(1e-6 * tau))).all()
    assert (gradient.double() - expected_gradient).abs().max() < 1e-5
    assert gradient.double().sum(1).abs().max() < 1e-6


@pytest.mark.parametrize("adaptive", [True, False])
@pytest.mark.parametrize(("k", "classes"), [(1, 300), (2, 100), (5, 1000), (20, 300), (50, 300), (50, 60)])
def test_float32_over_the_whole_grid(k, classes, adaptive, turning_rows):
    for tau in TEMPERATURES:
        scores, target = turning_rows(classes, k, tau)
        expected, slope = smooth_topk_svm_rows(scores, target, k, tau)
        for part in torch.arange(len(scores)).split(1 if adaptive and k < 5 else 8):
            result = losses_and_gradient(scores[part], target[part], k, tau, adaptive)
            assert_precise(*result, expected[part], slope[part], tau)


@pytest.mark.parametrize(
    ("classes", "k", "spread", "tau"),
    [(8, 1, 1.0, 1.0), (7, 3, 2.0, 0.3), (40, 3, 0.3, 1.0), (40, 3, 3.0, 0.1)],
)
def test_derivatives_of_both_orders(classes, k, spread, tau, sample):
    """Split off altogether, without a dominating class, and split off in part; with margins too."""
    scores, target = sample(2, classes, spread)
    margins = torch.linspace(0.5, 1.5, classes, dtype=torch.float64)

    def loss(s, m):
        return smooth_topk_svm(s, target, k, tau, m, reduction="none")

    leaves = (scores.requires_grad_(), margins.requires_grad_())
    fast = classes > 10  # along random directions, not every pair of entries
    assert torch.autograd.gradcheck(loss, leaves, fast_mode=fast)
    assert torch.autograd.gradgradcheck(loss, leaves, fast_mode=fast)


@pytest.mark.parametrize("k", [1, 3, 8])
def test_all_ways_agree(k, sample):
    """Power sums alone, the split decided by the data, the full split and the differentiable operations."""
    for spread, tau in ((0.1, 1.0), (3.0, 1.0), (3.0, 0.05), (3.0, 1e-3)):
        scores, target = sample(5, 200, spread)
        results = [losses_and_gradient(scores, target, k, tau, adaptive) for adaptive in (True, False)]
        rule = PlainSmoothSVM(k, tau)
        results.append(with_gradient(lambda s, y=target, rule=rule: rule.plain(s, y[:, None], 1.0), scores))
        for losses, gradient in results[1:]:
            torch.testing.assert_close(losses, results[0][0], rtol=1e-11, atol=1e-12)
            torch.testing.assert_close(gradient, results[0][1], rtol=0, atol=1e-12)


def test_parts_of_a_batch_are_worked_on_alone(monkeypatch, sample):
    scores, target = sample(7, 30)
    whole = losses_and_gradient(scores, target, 2, 0.3)
    monkeypatch.setattr(plain, "CHUNK", 60)
    for ours, expected in zip(losses_and_gradient(scores, target, 2, 0.3), whole, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("tau", [1.0, 0.3, 0.01])
@pytest.mark.parametrize("k", [1, 2])
def test_masked_float64_classes_beside_nan(k, tau):
    """The row of NaN makes all classes be split off; the masked ones' gaps must not overflow a float64."""
    rows = [[0.0, 0, 0, 0, 0], [0, 0, 0, 0, torch.nan], [0, 0, 0, -torch.inf, -torch.inf]]
    scores = torch.tensor(rows, dtype=torch.float64)
    losses = smooth_topk_svm(scores, torch.zeros(3, dtype=torch.int64), k, tau, reduction="none")
    assert losses[1].isnan()
    alone = [smooth_topk_svm(row[None], torch.tensor([0]), k, tau) for row in (scores[0], scores[2, :3])]
    torch.testing.assert_close(losses[::2], torch.stack(alone))


def test_so_many_classes_and_so_large_a_k_that_polynomials_would_overflow():
    scores = torch.linspace(-1, 1, 1100)[None]
    loss, gradient = with_gradient(lambda s: smooth_topk_svm(s, torch.tensor([7]), 540), scores)
    assert torch.isfinite(loss)
    assert gradient.sum().abs() < 1e-6
    assert gradient[0, 7] < 0


@given(
    k=st.integers(2, 30),
    number=st.integers(0, 300),
    spread=st.floats(0, 3),
    tolerance=st.sampled_from([1e-3, 2e-7, 1e-12]),
    seed=st.integers(0, 10_000),
)
def test_power_sums_left_out_are_within_the_bound(k, number, spread, tolerance, seed):
    generator = torch.Generator().manual_seed(seed)
    values = (spread * torch.randn(3 * k + number, generator=generator, dtype=torch.float64)).exp()
    values = values / values.max()
    if values.sum() < 3 * k:
        return
    kappa = k / (values.sum().item() - k + 1)
    powers = enough_powers(k, kappa, k / (1 - kappa), tolerance)
    unit = values.sum() / k
    signed = torch.stack([(-1) ** i * (values / unit).pow(i).sum() for i in range(1, k + 1)])[:, None]
    full, part = (newton(sums, k)[k] for sums in (signed, signed[:powers]))
    assert abs(math.log(part.item() / full.item())) < tolerance + 1e-13


@pytest.mark.parametrize("k", [1, 2, 4, 6])
@pytest.mark.parametrize("tau", [0.2, 1.0, 5.0])
def test_without_a_margin_it_is_the_exact_k_likelihood(k, tau, sample):
    """``exp(L / τ) = 1 + σ_K / (σ_{K-1} e_y)``, which is σ_K of all over what of it holds y: value and gradient."""
    scores, target = sample(6, 7)

    def likelihood(s):
        chances = functional.inclusion_probabilities(s, k, temperature=k * tau)
        return -tau * chances.gather(1, target[:, None]).squeeze(1).log()

    svm = with_gradient(lambda s: smooth_topk_svm(s, target, k, tau, margin=0.0, reduction="none"), scores)
    torch.testing.assert_close(svm, with_gradient(likelihood, scores))


@pytest.mark.parametrize("spread", [0.5, 30.0])
def test_a_common_offset_costs_no_digits(spread, sample):
    """With exact differences of scores, whether all classes are comparable or some are split off."""
    scores, target = sample(24, 40, spread)
    scores = (scores * 2**10).round() / 2**10
    losses = smooth_topk_svm(scores, target, 3, 0.5, reduction="none")
    for offset in (2.0**20, -(2.0**40)):
        moved = smooth_topk_svm(scores + offset, target, 3, 0.5, reduction="none")
        torch.testing.assert_close(moved, losses, rtol=1e-13, atol=1e-13)
