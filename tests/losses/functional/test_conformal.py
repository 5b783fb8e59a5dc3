"""Conformal training against its oracle, and what else a loss of whole batches owes a training script."""

import copy

import pytest
import torch
from gradients import with_gradient
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

import topk_losses
from topk_losses.functional import conformal_training
from topk_losses.testing import oracles

SETTINGS = [
    {},
    {"alpha": 0.3, "temperature": 0.2, "kappa": 0.0, "size_weight": 2.0, "classification": 0.5},
    {"alpha": 0.0, "classification": 0.0, "size_weight": 1.0, "kappa": 0.5},
    {"alpha": 0.95, "temperature": 3.0},
]
DEFAULTS = {"alpha": 0.01, "temperature": 1.0, "kappa": 1.0, "size_weight": 0.01, "classification": 1.0}


def batch(rows, classes=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    scores = 2 * torch.randn(rows, classes, generator=generator, dtype=torch.float64)
    return scores, torch.randint(classes, (rows,), generator=generator)


@pytest.mark.parametrize("own", SETTINGS)
@given(st.integers(1, 9), st.integers(2, 5), st.integers(0, 1000))
def test_values_and_gradients_are_those_of_the_oracle(own, rows, classes, seed):
    scores, labels = batch(rows, classes, seed)
    ours = with_gradient(lambda s: conformal_training(s, labels, **own), scores)
    theirs = with_gradient(
        lambda s: oracles.conformal_training(s, labels.tolist(), **{**DEFAULTS, **own}), scores
    )
    torch.testing.assert_close(ours, theirs)


def test_a_constant_in_a_row_and_the_order_of_classes_change_nothing():
    scores, labels = batch(10)
    value = conformal_training(scores, labels, alpha=0.2)
    torch.testing.assert_close(
        conformal_training(scores + torch.arange(10)[:, None], labels, alpha=0.2), value
    )
    order = torch.tensor([3, 0, 4, 1, 2])
    torch.testing.assert_close(
        conformal_training(scores[:, order], order.argsort()[labels], alpha=0.2), value
    )


def test_the_order_of_samples_within_a_half_changes_nothing_and_halves_differ():
    scores, labels = batch(10)
    value = conformal_training(scores, labels, alpha=0.2)
    within = torch.tensor([4, 2, 0, 1, 3, 9, 5, 8, 6, 7])
    torch.testing.assert_close(conformal_training(scores[within], labels[within], alpha=0.2), value)
    assert conformal_training(scores.flip(0), labels.flip(0), alpha=0.2) != value


def test_a_masked_class_is_as_if_it_were_not_there():
    scores, labels = batch(8)
    wider = torch.cat([scores, torch.full((8, 1), -torch.inf, dtype=scores.dtype)], 1)
    masked, gradient = with_gradient(
        lambda s: conformal_training(s, labels, alpha=0.2, size_weight=1.0), wider
    )
    torch.testing.assert_close(masked, conformal_training(scores, labels, alpha=0.2, size_weight=1.0))
    assert gradient.isfinite().all() and (gradient[:, -1] == 0).all()


def test_extreme_scores_stay_finite_and_a_nan_shows():
    scores, labels = batch(8)
    loss, gradient = with_gradient(lambda s: conformal_training(s, labels), 1e4 * scores.float())
    assert loss.isfinite() and gradient.isfinite().all()
    scores[0, 0] = torch.nan
    assert conformal_training(scores, labels).isnan()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype):
    scores, labels = batch(8)
    half = scores.to(dtype)
    loss = conformal_training(half, labels)
    assert loss.dtype == torch.float32 and loss == conformal_training(half.float(), labels)


def test_it_works_in_vmap_and_compiles_and_copies():
    pairs = [batch(8, seed=seed) for seed in range(3)]
    scores, labels = (torch.stack(parts) for parts in zip(*pairs, strict=True))
    loss = topk_losses.ConformalTraining(alpha=0.2)
    together = torch.func.vmap(torch.func.grad(loss))(scores, labels)
    for number, (s, y) in enumerate(pairs):
        torch.testing.assert_close(together[number], torch.func.grad(loss)(s, y))
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*pairs[0]), loss(*pairs[0]))
    assert repr(copy.deepcopy(loss)) == repr(loss) and "alpha=0.2" in repr(loss)


def test_forward_mode_and_shapes_without_values():
    scores, labels = batch(8)

    def loss(s):
        return conformal_training(s, labels, 0.3, 0.5, 0.5, 1.0)

    assert torch.autograd.gradcheck(loss, scores.requires_grad_(), check_forward_ad=True)
    expected = torch.autograd.functional.hessian(loss, scores)
    torch.testing.assert_close(torch.func.hessian(loss)(scores.detach()), expected)
    with torch.device("meta"):
        assert loss(scores) == conformal_training(scores, labels, 0.3, 0.5, 0.5, 1.0)
    for context in (torch.device("meta"), FakeTensorMode()):
        with context:
            assert conformal_training(torch.empty(6, 5), torch.zeros(6, dtype=torch.int64)).shape == ()


def test_exports_for_any_even_number_of_samples():
    class Whole(torch.nn.Module):
        def forward(self, scores, labels):
            return conformal_training(scores, labels, alpha=0.3)

    rows = {0: 2 * torch.export.Dim("half", min=2, max=512)}
    exported = torch.export.export(Whole(), batch(8), dynamic_shapes=(rows, rows)).module()
    for count in (4, 10, 300):
        torch.testing.assert_close(exported(*batch(count)), Whole()(*batch(count)))
