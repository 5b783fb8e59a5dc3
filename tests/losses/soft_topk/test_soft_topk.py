"""Soft top-K by a threshold: against bisection, by hand, in float32, and what holds for every shape."""

import itertools
import math

import mpmath
import pytest
import torch
from gradients import with_gradient
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import one_hot

from topk_losses.functional import lapsum_topk, lapsum_topk_loss, soft_topk, soft_topk_loss
from topk_losses.testing import oracles

SHAPES = ("logistic", "laplace", "gaussian", "clip", "power", "midpoint")
SUMMING = SHAPES[:-1]  # the midpoint's memberships sum to nearly k
FORMS = [
    (shape, form)
    for shape, form in itertools.product(SHAPES, ("log", "error"))
    if form == "error" or shape not in ("clip", "power")
]


EXACT = {
    "logistic": (lambda x: 1 / (1 + mpmath.exp(-x)), lambda x: 1 / (2 + mpmath.exp(x) + mpmath.exp(-x))),
    "laplace": (
        lambda x: mpmath.exp(x) / 2 if x < 0 else 1 - mpmath.exp(-x) / 2,
        lambda x: mpmath.exp(-abs(x)) / 2,
    ),
    "gaussian": (mpmath.ncdf, mpmath.npdf),
}
EXACT["midpoint"] = EXACT["logistic"]


def exact_gradient(scores, label, k, tau, shape, form):
    """The gradient of the loss of one row, with 200 digits."""
    chance, density = EXACT[shape]
    s = [mpmath.mpf(score) / tau for score in scores]
    order = sorted(range(len(s)), key=lambda j: -s[j])
    b = (s[order[k - 1]] + s[order[k]]) / 2
    if shape != "midpoint":

        def surplus(b):
            missing = mpmath.fsum(chance(b - s[j]) for j in order[:k])
            return missing - mpmath.fsum(chance(s[j] - b) for j in order[k:])

        low, high = min(s) - 100, max(s) + 100
        for _ in range(120):
            b = (low + high) / 2
            low, high = (low, b) if surplus(b) > 0 else (b, high)
    f = [density(score - b) for score in s]
    shares = [one / mpmath.fsum(f) for one in f]
    if shape == "midpoint":
        shares = [mpmath.mpf(0.5 if j in order[k - 1 : k + 1] else 0) for j in range(len(s))]
    slope = f[label] / tau / (chance(s[label] - b) if form == "log" else 1)
    return [slope * (share - (j == label)) for j, share in enumerate(shares)]


@pytest.mark.parametrize(("shape", "form"), [pair for pair in FORMS if pair[0] in EXACT])
@pytest.mark.parametrize("chance", [1e-12, 0.5, 1 - 1e-12])
def test_gradients_keep_their_digits_whatever_the_probability(shape, form, chance, sample):
    """With labels, with probabilities as targets, and through the memberships; relative to the largest entry."""
    k, tau = (1, 0.3) if chance < 0.1 else (3, 1.0)
    scores = sample(1, 7)[0]
    scores[0, 2] = scores[0, [0, 1, 3, 4, 5, 6]].logsumexp(0) + math.log(chance) - math.log1p(-chance)
    with mpmath.workdps(200):
        digits = exact_gradient(scores[0].tolist(), 2, k, tau, shape, form)
        exact = torch.tensor([float(g) for g in digits], dtype=torch.float64)
    target = torch.tensor([2])
    losses = [
        lambda s, t=t: soft_topk_loss(s, t, k, tau, shape, form)
        for t in (target, one_hot(target, 7).double())
    ]
    if form == "error":
        losses.append(lambda s: -soft_topk(s, k, tau, shape)[0, 2])
    for loss in losses:
        _, gradient = with_gradient(loss, scores)
        assert (gradient[0] - exact).abs().max() <= 1e-11 * exact.abs().max()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("classes", "k"), [(2, 1), (9, 4), (40, 1), (40, 39)])
def test_memberships_are_those_of_bisection(shape, classes, k, sample):
    """To 1e-9, and for the cube to 1e-7: where it touches 0, its sum is known to rounding but its threshold is not."""
    for tau, spread in ((0.05, 3.0), (1.0, 1.0), (30.0, 3.0)):
        scores = sample(3, classes, spread)[0]
        expected = torch.stack([oracles.soft_topk(row, k, tau, shape) for row in scores])
        bound = 1e-7 if shape == "power" else 1e-9
        torch.testing.assert_close(soft_topk(scores, k, tau, shape), expected, rtol=0, atol=bound)


@pytest.mark.parametrize("shape", SHAPES)
def test_derivatives(shape, sample):
    scores, target = sample(1, 5)
    scores.requires_grad_()
    form = "error" if shape in ("clip", "power") else "log"
    for function in (
        lambda s: soft_topk(s, 2, 1.7, shape),
        lambda s: soft_topk_loss(s, target, 2, 1.7, shape, form, reduction="none"),
    ):
        assert torch.autograd.gradcheck(function, scores)
        assert torch.autograd.gradgradcheck(function, scores)


def test_two_classes_by_hand():
    """The threshold is their middle: 1 and -1 off it in units of τ = 2; the cube's is where ``x³ + (x - 1)³ = 1``."""
    scores = torch.tensor([3.0, -1.0], dtype=torch.float64)
    first = {
        "logistic": 1 / (1 + math.exp(-1)),
        "laplace": 1 - math.exp(-1) / 2,
        "gaussian": (1 + math.erf(1 / math.sqrt(2))) / 2,
        "midpoint": 1 / (1 + math.exp(-1)),
    }
    for shape, p in first.items():
        assert soft_topk(scores, 1, 2.0, shape).tolist() == pytest.approx([p, 1 - p])
    assert soft_topk(scores, 1, 2.0, "clip").tolist() == [1, 0]
    assert soft_topk(scores, 1, 8.0, "clip").tolist() == pytest.approx([0.75, 0.25])


@pytest.mark.parametrize("gap", [0.04, 0.3, 0.6, 0.9, 1.5])
def test_two_classes_of_the_shapes_with_bounds(gap, way):
    """The threshold is where ``clip(gap - b) + clip(-b) = 1``: both of Newton's lines there end in corners."""
    scores, target = torch.tensor([[0.0, gap], [gap, 0.0]]), torch.tensor([0, 0])
    worse = max(0.0, (1 - gap) / 2)
    result = soft_topk_loss(scores, target, 1, 1.0, "clip", "error", reduction="none")
    torch.testing.assert_close(result, torch.tensor([1 - worse, worse]), rtol=0, atol=1e-6)
    expected = soft_topk_loss(scores.double(), target, 1, 1.0, "power", "error", reduction="none")
    result = soft_topk_loss(scores, target, 1, 1.0, "power", "error", reduction="none")
    torch.testing.assert_close(result.double(), expected, rtol=0, atol=1e-6)


def test_clip_is_the_projection(sample):
    """No other point of ``{0 <= u <= 1, Σ u = K}`` is nearer to ``s / τ``: the angle to each corner is obtuse."""
    scores = sample(4, 6)[0]
    p = soft_topk(scores, 2, 1.5, "clip")
    for corner in itertools.combinations(range(6), 2):
        point = torch.zeros(6, dtype=torch.float64)
        point[list(corner)] = 1
        assert (((scores / 1.5 - p) * (point - p)).sum(1) <= 1e-12).all()


@given(
    shape=st.sampled_from(SHAPES),
    classes=st.integers(2, 40),
    share=st.floats(0, 1),
    spread=st.sampled_from([0.0, 0.1, 3.0, 30.0, 1000.0]),
    tau=st.sampled_from([1e-3, 0.1, 1.0, 50.0]),
    offset=st.floats(-1000, 1000),
    seed=st.integers(0, 10_000),
)
def test_memberships_sum_to_k_and_keep_the_order(shape, classes, share, spread, tau, offset, seed):
    generator = torch.Generator().manual_seed(seed)
    k = 1 + int(share * (classes - 1))
    scores = (spread * torch.randn(3, classes, generator=generator) + offset).requires_grad_()
    p = soft_topk(scores, k, tau, shape)
    assert ((p >= 0) & (p <= 1)).all()
    if shape in SUMMING or k == classes:
        torch.testing.assert_close(p.sum(1), torch.full((3,), float(k)), rtol=3e-6, atol=0)
    order = scores.detach().argsort(descending=True)
    assert (p.detach().gather(1, order).diff(dim=1) <= 0).all()
    (slope,) = torch.autograd.grad(p, scores, torch.randn(3, classes, generator=generator))
    assert slope.isfinite().all()
    assert (slope.sum(1).abs() <= 2e-6 * classes / tau).all()


@pytest.mark.parametrize(("shape", "form"), FORMS)
@pytest.mark.parametrize(("k", "tau"), [(1, 30.0), (5, 1e-3), (99, 1.0)])
def test_float32_agrees_with_float64_at_any_range_of_scores(shape, form, k, tau, way, sample):
    """Within 1e-6 of float64's, the gradient within 2e-6 over τ: both are rounded sums of terms of up to 1."""
    for spread in (0.1, 3.0, 1000.0):
        scores, target = sample(20, 200, spread)
        (losses, gradient), (exact, slope) = (
            with_gradient(
                lambda s, y=target: soft_topk_loss(s, y, k, tau, shape, form, reduction="none"), rows
            )
            for rows in (scores.float(), scores.float().double())
        )
        torch.testing.assert_close(losses.double(), exact, rtol=1e-6, atol=1e-6)
        # A Gaussian's hazard grows with the distance: relative to the row's largest slope.
        size = slope.abs().amax(1, keepdim=True).clamp(min=1 / tau)
        assert ((gradient.double() - slope).abs() <= 2e-6 * size).all()


@pytest.mark.parametrize(("loss", "further"), [(soft_topk_loss, 0.0), (lapsum_topk_loss, math.log(2))])
def test_a_target_far_below_costs_its_distance(loss, further, way):
    """-log of a p that underflows: the threshold is half-way between 1000 and 0, as in float64 so in float32."""
    scores, target = torch.tensor([[1000.0, 0.0, -1000.0]]), torch.tensor([2])
    value, gradient = with_gradient(lambda s: loss(s, target, 1), scores)
    assert value.item() == pytest.approx(1500 + further)
    torch.testing.assert_close(gradient, torch.tensor([[0.5, 0.5, -1.0]]))


def test_the_operators_small_memberships_have_their_gradient():
    scores = torch.tensor([[25.0, 0.0, -25.0]])
    _, gradient = with_gradient(lambda s: -lapsum_topk(s, 1)[0, 1].log(), scores)
    torch.testing.assert_close(gradient, torch.tensor([[0.5, -0.5, 0.0]]))


@pytest.mark.parametrize("shape", ["logistic", "laplace", "gaussian", "midpoint"])
@pytest.mark.parametrize("size", [1e9, 1e15, 1e25])
def test_a_loss_grows_with_scores_of_any_size(shape, size, way):
    """A network that diverges has such scores. -log F falls linearly, the Gaussian's with half the square."""
    scores = torch.tensor([[size, 0.0, -size]], dtype=torch.float64)
    loss = soft_topk_loss(scores, torch.tensor([2]), 1, shape=shape).item()
    distance = 1.5 * size
    assert loss == pytest.approx(distance**2 / 2 if shape == "gaussian" else distance)


@pytest.mark.parametrize("shape", SHAPES)
def test_masked_classes_are_absent(shape, sample):
    scores = sample(4, 7)[0].requires_grad_()
    masked = torch.cat([scores, torch.full((4, 3), -torch.inf)], 1)
    for k in (1, 6):
        p = soft_topk(masked, k, 1.5, shape)
        torch.testing.assert_close(p[:, :7], soft_topk(scores, k, 1.5, shape))
        assert (p[:, 7:] == 0).all()
    for k in (7, 10):
        p = soft_topk(masked, k, 1.5, shape)
        assert (p == torch.tensor([1.0] * 7 + [0.0] * 3)).all()
        (slope,) = torch.autograd.grad(p.sum(), scores)
        assert (slope == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_ignored_sample_whose_class_0_is_masked_has_no_gradient(dtype, plain_torch):
    """Inside it stands for class 0, where the Gaussian shape's slope is beyond float32."""
    scores, ignored = torch.tensor([[-torch.inf, 1.0, 0.0, 2.0]], dtype=dtype), torch.tensor([-100])
    _, gradient = with_gradient(
        lambda s: soft_topk_loss(s, ignored, 2, shape="gaussian", reduction="sum"), scores
    )
    assert gradient.abs().max() == 0
