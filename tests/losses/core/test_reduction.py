"""The layout, targets, weights and reductions, which all losses share; cross-entropy stands for them."""

import pytest
import torch

from topk_losses import functional as tf
from topk_losses import use_backend


def test_mean_over_ignored_rows_only_is_nan_as_in_torch():
    scores, target = torch.zeros(2, 3), torch.tensor([-100, -100])
    assert tf.cross_entropy(scores, target).isnan()
    assert tf.cross_entropy(scores, target, reduction="sum") == 0


def test_empty_batch():
    scores, target = torch.zeros(0, 3, requires_grad=True), torch.zeros(0, dtype=torch.int64)
    for loss in (tf.cross_entropy, lambda *a, **r: tf.topk_hinge(*a, k=1, **r)):
        assert loss(scores, target).isnan()
        assert loss(scores, target, reduction="sum") == 0
        assert loss(scores, target, reduction="none").shape == (0,)


@pytest.mark.parametrize("classes", [3, 200])
@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_empty_batch_has_an_empty_gradient(backend, classes):
    """As a worker has that got no sample; each rule has a backward pass of its own."""
    scores, target = torch.zeros(0, classes, requires_grad=True), torch.zeros(0, dtype=torch.int64)
    rules = tf.smooth_topk_hinge, tf.smooth_topk_svm, tf.soft_topk_loss, tf.topk_entropy, tf.topk_transition
    for loss in rules:
        with use_backend(backend):
            (slope,) = torch.autograd.grad(loss(scores, target, 2, reduction="sum"), scores)
        assert slope.shape == scores.shape


def test_ignored_row_of_nan_leaves_the_loss_alone():
    scores = torch.randn(3, 4)
    scores[1] = torch.nan
    target = torch.tensor([0, -100, 2])
    torch.testing.assert_close(
        tf.cross_entropy(scores, target), tf.cross_entropy(scores[[0, 2]], target[[0, 2]])
    )


def test_weighted_soft_targets_are_torchs():
    """torch weighs every term and divides by the number of samples; so does the hinge's expected loss."""
    scores, weight = torch.randn(5, 4), torch.rand(4)
    soft = torch.rand(5, 4).softmax(1)
    by_class = torch.stack(
        [tf.topk_hinge(scores, torch.full((5,), c), 2, reduction="none") for c in range(4)], 1
    )
    torch.testing.assert_close(
        tf.topk_hinge(scores, soft, 2, weight=weight), (weight * soft * by_class).sum(1).mean()
    )


def test_masked_class_without_a_share_costs_nothing():
    scores = torch.tensor([[1.0, 2.0, -torch.inf]], requires_grad=True)
    soft = torch.tensor([[0.5, 0.5, 0.0]])
    loss = tf.cross_entropy(scores, soft)
    loss.backward()
    torch.testing.assert_close(loss, tf.cross_entropy(scores[:, :2], soft[:, :2]))
    assert scores.grad.isfinite().all()
    assert tf.cross_entropy(scores, torch.tensor([[0.5, 0.4, 0.1]])) == torch.inf


def test_gradient_reaches_soft_targets():
    scores = torch.randn(3, 4, dtype=torch.float64)
    soft = torch.rand(3, 4, dtype=torch.float64).softmax(1).requires_grad_()
    assert torch.autograd.gradcheck(lambda t: tf.topk_hinge(scores, t, 2, reduction="none"), soft)


@pytest.mark.parametrize(
    ("rows", "shape"),
    [
        (lambda scores, labels: -scores.log_softmax(1).gather(1, labels)[:, 0], r"\(4,\)"),
        (lambda scores, labels: -scores.log_softmax(1), r"\(4, 3\)"),
        (lambda scores, labels: -scores.log_softmax(1).gather(1, labels).mean(), r"\(\)"),
        (lambda scores, labels: 1.0, "float"),
    ],
)
def test_rows_of_another_shape_are_refused_and_not_broadcast(rows, shape):
    with pytest.raises(ValueError, match=rf"rows must return .* labels' shape \(4, 1\) .*, got {shape}"):
        tf.reduce_rows(rows, torch.zeros(4, 3), torch.tensor([0, 1, 2, 0]))


def test_rows_of_another_shape_are_refused_for_soft_targets():
    with pytest.raises(ValueError, match=r"labels' shape \(4, 3\) .*, got \(4, 1\)"):
        tf.reduce_rows(lambda scores, labels: scores[:, :1], torch.zeros(4, 3), torch.full((4, 3), 1 / 3))
