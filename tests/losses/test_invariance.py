"""What must change nothing, on scores that hypothesis makes up: ties, huge offsets, masks, NaN."""

import inspect
import itertools

import pytest
import torch
from gradients import with_gradient
from hypothesis import example, given
from hypothesis import strategies as st

from topk_losses import functional, use_backend
from topk_losses._core import numba

VARIANT = {
    *("balanced_softmax", "logit_adjusted", "vector_scaling"),
    "logit_clip",
    *("conformal_training", "early_learning"),
    "noised_imbalanced_topk_hinge",
}
"""Losses that depend on which class is which, on a constant in all scores, or on other samples."""


def plain(name, **given):
    """A loss with its own parameters as they are given, or else by default."""
    function = getattr(functional, name)
    takes_k = "k" in inspect.signature(function).parameters
    return lambda s, y, k: function(s, y, *([k] if takes_k else []), **given, reduction="none")


LOSSES = {
    **{
        name: plain(name)
        for name in functional.__all__
        if "target" in inspect.signature(getattr(functional, name)).parameters
        and name not in {*VARIANT, "reduce_rows"}  # which only averages values that a loss has computed
    },
    "focal": plain("focal", gamma=0.5),
    "generalized_cross_entropy": plain("generalized_cross_entropy", gamma=0.7),
    "label_smoothing": plain("label_smoothing", epsilon=0.2),
    "active_negative_loss": plain("active_passive_loss", alpha=2.0, beta=1.0, passive="nnce"),
    "asymmetric_loss": plain("asymmetric_loss", form="aul", a=3.0, q=2.0, alpha=1.0),
    "ldam": lambda s, y, k: functional.ldam(s, y, torch.full((s.shape[1],), 0.5), 3.0, reduction="none"),
    "lapsum_topk_loss": plain("lapsum_topk_loss", temperature=0.7),
    "soft_topk_loss": plain("soft_topk_loss", tau=0.7),
    "soft_topk_error": plain("soft_topk_loss", tau=0.7, shape="laplace", form="error"),
    "clipped_soft_topk_error": plain("soft_topk_loss", tau=1.7, shape="clip", form="error"),
    "smooth_topk_hinge": plain("smooth_topk_hinge", gamma=0.5),
    "sorting_topk_cross_entropy": plain("sorting_topk_cross_entropy", candidates=8),
    "logistic_sorting": plain(
        "sorting_topk_cross_entropy", steepness=1.0, candidates=16, relaxation="logistic"
    ),
    "smooth_topk_svm": plain("smooth_topk_svm", tau=0.3),
    "noised_topk_hinge": plain("noised_topk_hinge", epsilon=0.5, samples=None),
}
# Of equal scores.
ASK_WHICH = ("topk_grouping", "topk_transition", "sorting_topk_cross_entropy", "logistic_sorting")
every_loss = pytest.mark.parametrize("name", LOSSES)

ONE_OF_EACH_KIND = {
    *("cross_entropy", "ldam", "asymmetric_loss", "topk_hinge", "topk_grouping", "topk_entropy"),
    *("smooth_topk_svm", "smooth_topk_hinge", "sorting_topk_cross_entropy", "soft_topk_loss"),
    "noised_topk_hinge",
}
"""Softmax, margins, a function of the probability, the K largest, groups, projections, and all that has kernels."""


def one_of_each(kinds):
    """All losses, those beyond these as slow tests: `test_contract.py` has the same properties of each, by a sample."""
    names = [name if name in kinds else pytest.param(name, marks=pytest.mark.slow) for name in LOSSES]
    return pytest.mark.parametrize("name", names)


one_loss_of_each_kind = one_of_each(ONE_OF_EACH_KIND)
needs_numba = pytest.mark.skipif(not numba.is_there(), reason="needs Numba")
every_backend = pytest.mark.parametrize("backend", ["torch", pytest.param("numba", marks=needs_numba)])

# The same noise for every call, and margins that keep most hinges open.
BY_DRAWS = {
    "noised_topk_hinge by draws": lambda s, y, k: functional.noised_topk_hinge(
        s, y, k, 0.5, 5, 3.0, generator=torch.Generator().manual_seed(0), reduction="none"
    ),
    "noised_imbalanced_topk_hinge by draws": lambda s, y, k: functional.noised_imbalanced_topk_hinge(
        *(s, y, k, torch.linspace(2, 4, s.shape[1]), 0.5, 5, 2.0),
        generator=torch.Generator().manual_seed(0),
        reduction="none",
    ),
}
EVERY = LOSSES | BY_DRAWS
every_loss_and_draws = pytest.mark.parametrize("name", EVERY)


def some_batch(classes, dtype=torch.float32, rows=5):
    generator = torch.Generator().manual_seed(classes)
    scores = torch.randn(rows, classes, generator=generator, dtype=torch.float64).to(dtype)
    return scores, torch.randint(classes, (rows,), generator=generator)


@every_loss_and_draws
@every_backend
def test_gradients_computed_together_are_those_computed_one_by_one(name, backend):
    """With ``is_grads_batched``, and with ``vmap`` over gradients; kernels compute at 400 classes."""
    scores, target = some_batch(400)
    leaf = scores.requires_grad_()
    each = torch.randn(3, len(scores), generator=torch.Generator().manual_seed(1))
    with use_backend(backend):
        losses = EVERY[name](leaf, target, 3)

        def pull_back(one):
            return torch.autograd.grad(losses, leaf, one, retain_graph=True)[0]

        alone = torch.stack([pull_back(one) for one in each])
        together = torch.autograd.grad(losses, leaf, each, is_grads_batched=True, retain_graph=True)[0]
        mapped = torch.func.vmap(pull_back)(each)
    torch.testing.assert_close(together, alone)
    torch.testing.assert_close(mapped, alone)


@pytest.mark.parametrize("loss", [functional.smooth_topk_svm, functional.noised_topk_hinge])
def test_mean_in_one_node_has_the_bits_of_the_mean_of_all_losses(loss):
    """The value, one gradient, several together, and the second derivative."""
    scores, target = some_batch(400)
    leaf = scores.requires_grad_()
    each = torch.tensor([1.0, -0.3, 7.0])
    results = []
    for reduction in ("mean", "none"):
        torch.manual_seed(3)
        mean = loss(leaf, target, 3, reduction=reduction).mean()

        def pull_back(slope, mean=mean, **how):
            return torch.autograd.grad(mean, leaf, slope, retain_graph=True, **how)[0]

        first = pull_back(each[1], create_graph=True)
        second = torch.autograd.grad(first.square().sum(), leaf, retain_graph=True)[0]
        results.append((mean, pull_back(each[1]), pull_back(each, is_grads_batched=True), second))
    for own, expected in zip(*results, strict=True):
        assert torch.equal(own, expected)


@every_loss_and_draws
@every_backend
def test_gradients_of_torch_func_are_those_of_autograd(name, backend):
    """``vmap`` of a ``vjp`` against single ``vjp``s and, where no noise is drawn, against autograd."""
    scores, target = some_batch(400)
    each = torch.randn(7, len(scores), generator=torch.Generator().manual_seed(1))
    with use_backend(backend):
        losses, pull_back = torch.func.vjp(lambda s: EVERY[name](s, target, 3), scores)
        (together,) = torch.func.vmap(pull_back)(each)
        alone = torch.stack([pull_back(one)[0] for one in each])
        torch.testing.assert_close(together, alone)
        if name in BY_DRAWS:  # a kernel would make other noise of the same seed
            return
        leaf = scores.clone().requires_grad_()
        eager = EVERY[name](leaf, target, 3)
        torch.testing.assert_close(losses, eager.detach(), rtol=1e-4, atol=1e-5)
        slopes = torch.stack([torch.autograd.grad(eager, leaf, one, retain_graph=True)[0] for one in each])
        torch.testing.assert_close(together, slopes, rtol=1e-4, atol=1e-5)


def losses_and_slopes(name, scores, target, backend):
    with use_backend(backend):
        return with_gradient(lambda s: EVERY[name](s, target, 3), scores)


def assert_only_that_row_is_spoilt(name, backend, scores, target, row, column, value):
    """Its loss and its gradient are NaN; the others' are bit for bit what they are with a sound row in its place.

    Or without it: a row that cannot be drawn for may or may not take its share of a generator's numbers. To rounding
    where torch looks at all rows of a batch to choose its way.
    """
    odd = scores.clone()
    odd[row, column] = value
    losses, slopes = losses_and_slopes(name, odd, target, backend)
    assert losses[row].isnan(), f"{value} in column {column}"
    assert slopes[row].isnan().any(), f"{value} in column {column}"
    others = [n for n in range(len(scores)) if n != row]
    references = [tuple(x[others] for x in losses_and_slopes(name, scores, target, backend))]
    if name in BY_DRAWS:
        references.append(losses_and_slopes(name, scores[others], target[others], backend))
    by_batch = name in CHOOSES_BY_BATCH and goes_through_torch(name, backend, scores)
    bound = {} if by_batch else {"rtol": 0, "atol": 0}
    same = [
        torch.allclose(losses[others], loss, **bound) and torch.allclose(slopes[others], slope, **bound)
        for loss, slope in references
    ]
    assert any(same), f"{value} in column {column}"


CHOOSES_BY_BATCH = ("smooth_topk_svm", "noised_topk_hinge", "ldam", "label_smoothing")


def goes_through_torch(name, backend, scores):
    """Kernels treat each row by itself; they leave the smooth SVM of float64 scores to torch."""
    if name in ("ldam", "label_smoothing"):  # a batch with NaN does not go through torch's own cross-entropy
        return True
    return backend == "torch" or (name == "smooth_topk_svm" and scores.dtype == torch.float64)


@every_loss_and_draws
@every_backend
@pytest.mark.parametrize(("classes", "dtype"), [(400, torch.float32), (6, torch.float64)])
def test_nan_and_infinity_spoil_loss_and_gradient_of_their_row_alone(name, backend, classes, dtype):
    """A gradient scaler has to see that half precision has overflowed: no gradient of such a row may be finite."""
    scores, target = some_batch(classes, dtype)
    row = len(scores) - 1 if name in BY_DRAWS else 2
    label = int(target[row])
    for value, column in itertools.product((torch.nan, torch.inf), (label, (label + classes // 2) % classes)):
        assert_only_that_row_is_spoilt(name, backend, scores, target, row, column, value)


@pytest.mark.parametrize("name", [name for name in EVERY if name != "smooth_topk_svm"])  # labels alone
@every_backend
def test_nan_and_infinity_spoil_a_row_of_soft_targets(name, backend):
    """Whatever share of the target the odd class has: some, none, or all."""
    scores, _ = some_batch(6)
    row, column = len(scores) - 1, 4
    for share, value in itertools.product((None, 0.0, 1.0), (torch.nan, torch.inf)):
        soft = some_batch(6, rows=10)[0][5:].softmax(1)
        if share is not None:
            soft[row] = soft[row].scatter(0, torch.tensor(column), 0.0)
            soft[row] *= (1 - share) / soft[row].sum()
            soft[row, column] = share
        assert_only_that_row_is_spoilt(name, backend, scores, soft, row, column, value)


@every_loss_and_draws
@every_backend
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("masked", [1, 4])
def test_masked_classes_spoil_no_gradient_of_ignored_samples_and_soft_targets(name, backend, dtype, masked):
    """An ignored sample stands for class 0 inside, and soft targets ask for every class, at whatever score."""
    scores, target = some_batch(6, dtype)
    scores = scores.masked_fill(torch.arange(6) < masked, -torch.inf)
    soft = (torch.arange(6) >= masked).to(dtype).expand(5, 6) / (6 - masked)
    targets = [target.masked_fill(target < masked, -100)]
    targets += [] if name == "smooth_topk_svm" else [soft]  # labels alone
    for some in targets:
        losses, slopes = losses_and_slopes(name, scores, some, backend)
        assert losses.isfinite().all() and slopes.isfinite().all()


@every_loss_and_draws
@every_backend
def test_ignored_samples_without_a_class_have_no_gradient(name, backend):
    """Their gradient is 0, and those of the others are what they are without them."""
    scores, target = some_batch(6)
    masked = scores.index_fill(0, torch.tensor([1, 3]), -torch.inf)
    ignored = target.index_fill(0, torch.tensor([1, 3]), -100)
    losses, slopes = losses_and_slopes(name, masked, ignored, backend)
    _, rest = losses_and_slopes(name, scores, ignored, backend)
    assert (losses[[1, 3]] == 0).all()
    assert (slopes[[1, 3]] == 0).all()
    if "draws" not in name:
        torch.testing.assert_close(slopes, rest)


@needs_numba
@every_loss
@given(
    classes=st.sampled_from([2, 5, 30, 100, 129, 400]),
    data=st.data(),
    step=st.sampled_from([2.0**-10, 2.0**-4, 0.25, 2.0]),
    offset=st.sampled_from([0.0, -300.0]),
    seed=st.integers(0, 10_000),
)
def test_kernels_agree_with_torch_alone(name, classes, data, step, offset, seed):
    """Compiled or not, float32 losses and gradients are the same, of odd rows as well; of ties the losses."""
    k = data.draw(st.integers(1, min(classes - 1, 7 if "sorting" in name else 20)))
    generator = torch.Generator().manual_seed(seed)
    order = torch.stack([torch.randperm(classes, generator=generator) for _ in range(8)])
    scores = offset + step * order  # exact, no two of a row equal
    target = torch.randint(classes, (8,), generator=generator)
    scores[1] = scores[1].masked_fill(torch.rand(classes, generator=generator) < 0.3, -torch.inf)
    scores[2, 0], scores[3, 1] = torch.nan, torch.inf
    if name not in ASK_WHICH:
        scores[4], scores[5] = offset, (scores[5] / (8 * step)).round() * step
    results = []
    for backend in ("numba", "torch"):
        with use_backend(backend):
            results.append(with_gradient(lambda s: LOSSES[name](s, target, k), scores))
    (losses, slopes), (expected, expected_slopes) = results
    rounding = 2e-6 * max(1.0, abs(offset)) + 1e-5
    torch.testing.assert_close(losses, expected, rtol=1e-4, atol=10 * rounding, equal_nan=True)
    alike = [0, 6, 7]
    torch.testing.assert_close(slopes[alike], expected_slopes[alike], rtol=1e-3, atol=2e-4, equal_nan=True)


@st.composite
def problems(draw, special=(), least=2):
    """Scores with ties ``(N, L)``, labels ``(N,)`` and k, which reaches both 1 and L - 1."""
    classes = draw(st.integers(least, 7))
    entry = st.one_of(
        st.floats(-20, 20, width=32), st.integers(-1, 1).map(float), st.sampled_from([0.0, *special])
    )
    rows = draw(st.lists(st.lists(entry, min_size=classes, max_size=classes), min_size=1, max_size=4))
    labels = draw(st.lists(st.integers(0, classes - 1), min_size=len(rows), max_size=len(rows)))
    k = draw(st.sampled_from([1, classes - 1]) | st.integers(1, classes - 1))
    return torch.tensor(rows, dtype=torch.float64), torch.tensor(labels), k


def without_ties(problem):
    """Grouping asks which of two equal scores is among the K best, a choice that sorting makes."""
    scores, target, k = problem
    return scores + torch.arange(scores.shape[1]) * 1e-3, target, k


def evaluated(name, scores, target, k):
    return with_gradient(lambda s: LOSSES[name](s, target, k), scores)


@one_loss_of_each_kind
@given(problem=problems())
def test_losses_are_finite_and_not_negative(name, problem):
    scores, target, k = problem
    losses, slope = evaluated(name, scores, target, k)
    assert losses.isfinite().all()
    assert (losses >= 0).all()
    assert slope.isfinite().all()
    torch.testing.assert_close(slope.sum(1), torch.zeros(len(scores), dtype=slope.dtype), atol=1e-9, rtol=0)


@one_loss_of_each_kind
@given(problem=problems(least=3), offset=st.floats(-1000, 1000), seed=st.integers(0, 1000))
def test_offsets_orders_and_masked_classes_change_nothing(name, problem, offset, seed):
    scores, target, k = without_ties(problem)
    order = torch.randperm(scores.shape[1], generator=torch.Generator().manual_seed(seed))
    masked = torch.cat([scores, torch.full_like(scores[:, :2], -torch.inf)], 1)
    losses = LOSSES[name](scores, target, k)
    permuted = scores[:, order], order.argsort()[target]
    for same, labels in ((scores + offset, target), permuted, (masked, target)):
        torch.testing.assert_close(LOSSES[name](same, labels, k), losses, atol=1e-9, rtol=1e-9)


AT_A_KINK = torch.tensor([[1.0, 0.0, -1.0], [0.0, 0.0, torch.nan]], dtype=torch.float64)


@one_loss_of_each_kind
@given(problem=problems(special=[float("nan"), float("inf"), float("-inf")]))
@example(problem=(AT_A_KINK, torch.tensor([0, 0]), 1))
def test_rows_do_not_touch_one_another(name, problem):
    """Each row's loss and gradient are those it has alone, whatever infinities and NaN the others hold.

    But for the gradient at a hinge's kink: beside NaN a row goes another way, which may round to the kink's other side.
    Exact expectations are promised to 1e-8.
    """
    scores, target, k = problem
    together, slope = evaluated(name, scores, target, k)
    for n in range(len(scores)):
        alone, own_slope = evaluated(name, scores[n : n + 1], target[n : n + 1], k)
        torch.testing.assert_close(together[n : n + 1], alone, equal_nan=True)
        at_a_kink = 0 < max(together[n], alone[0]) < 1e-8
        if together[n].isfinite() and not at_a_kink:
            torch.testing.assert_close(slope[n : n + 1], own_slope)


@one_loss_of_each_kind
@given(problem=problems(special=[float("nan"), float("inf"), float("-inf")]))
def test_special_scores_have_their_stated_results(name, problem):
    """A masked target costs +inf; else NaN or +inf in a row give NaN; else the loss is finite."""
    scores, target, k = problem
    losses, slope = evaluated(name, scores, target, k)
    for row, label, loss, entries in zip(scores, target.tolist(), losses, slope, strict=True):
        if row[label] == -torch.inf:
            assert loss == torch.inf
        elif row.isnan().any() or (row == torch.inf).any():
            assert loss.isnan()
        else:
            assert loss.isfinite()
            assert entries.isfinite().all()
            assert (entries[row == -torch.inf] == 0).all()


@every_loss
@pytest.mark.parametrize(("offset", "spread", "k"), [(0, 10.0, 5), (1000, 1.0, 1), (-1000, 10.0, 5)])
def test_float32_is_the_float64_loss_of_the_same_scores(name, offset, spread, k, sample):
    scores, target = sample(50, 200, spread=spread)
    scores = (scores + offset).float()
    losses, slopes = evaluated(name, scores, target, k)
    exact, expected = evaluated(name, scores.double(), target, k)
    for ours in (losses, LOSSES[name](scores, target, k)):  # with and without a gradient
        torch.testing.assert_close(ours.double(), exact, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(slopes.double(), expected, rtol=0, atol=1e-5)
    assert slopes.double().sum(1).abs().max() < 1e-5
