"""Early-learning regularisation: against its definition, and the memory of its module against a plain loop."""

import pytest
import torch
from gradients import with_gradient
from torch.utils.checkpoint import checkpoint

from topk_losses import EarlyLearning, functional
from topk_losses.testing import oracles


def given(rows=6, classes=5, seed=0):
    source = torch.Generator().manual_seed(seed)
    scores = 2 * torch.randn(rows, classes, generator=source, dtype=torch.float64)
    memory = 0.9 * torch.rand(rows, classes, generator=source, dtype=torch.float64).softmax(1)
    return scores, torch.randint(classes, (rows,), generator=source), memory


@pytest.mark.parametrize("strength", [0.0, 0.5, 3.0])
def test_loss_and_gradient_are_those_of_the_definition(strength):
    scores, target, memory = given()
    weights = torch.arange(1.0, 7.0, dtype=torch.float64)

    def oracle(scores):
        rows = zip(scores, target.tolist(), memory, strict=True)
        return weights * torch.stack([oracles.early_learning(s, y, t, strength) for s, y, t in rows])

    def loss(scores):
        return weights * functional.early_learning(scores, target, memory, strength, reduction="none")

    torch.testing.assert_close(with_gradient(loss, scores), with_gradient(oracle, scores))
    assert torch.autograd.gradcheck(loss, scores.requires_grad_())


def test_a_sure_sample_that_was_always_sure_has_a_bounded_reward():
    """As in the authors' code: 1 - <p, t> is at least 1e-4; below it only cross-entropy has a gradient."""
    scores, memory = torch.tensor([[40.0, 0.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.0]])
    loss, gradient = with_gradient(
        lambda s: functional.early_learning(s, torch.tensor([0]), memory, 2.0), scores
    )
    assert loss.item() == pytest.approx(2 * torch.tensor(1e-4).log().item())
    assert gradient.abs().max() < 1e-6


def test_the_memory_is_the_running_average_of_each_samples_own_predictions():
    loss = EarlyLearning(samples=9, classes=5, strength=0.7, beta=0.6)
    memory = torch.zeros(9, 5, dtype=torch.float64)
    for step, index in enumerate(([3, 0, 8], [1, 3, 2], [8, 3, 0])):
        scores, target, _ = given(3, seed=step)
        value = loss(scores, target, index=torch.tensor(index))
        for row, sample in enumerate(index):
            memory[sample] = 0.6 * memory[sample] + 0.4 * scores[row].softmax(0)
        expected = [
            oracles.early_learning(s, y, memory[sample], 0.7)
            for s, y, sample in zip(scores, target.tolist(), index, strict=True)
        ]
        torch.testing.assert_close(value, torch.stack(expected).mean(), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(loss.memory.double(), memory, rtol=1e-6, atol=1e-6)
    assert loss.memory[[4, 5, 6, 7]].abs().max() == 0


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing_updates_the_memory_once(reentrant):
    scores, target, _ = given()
    index = torch.arange(6)
    plain, repeated = (EarlyLearning(samples=6, classes=5, beta=0.6) for _ in range(2))
    ours, theirs = scores.clone().requires_grad_(), scores.clone().requires_grad_()
    for _ in range(2):
        plain(theirs, target, index).backward()
        checkpoint(lambda s: repeated(s, target, index), ours, use_reentrant=reentrant).backward()
    assert torch.equal(repeated.memory, plain.memory)
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_a_prediction_that_is_not_finite_is_not_remembered():
    """So that the step that a gradient scaler leaves out leaves nothing behind."""
    loss = EarlyLearning(samples=2, classes=3)
    scores = torch.tensor([[1.0, torch.nan, 0.0], [1.0, 2.0, 0.0]])
    values = EarlyLearning.forward(loss, scores, torch.tensor([0, 1]), torch.tensor([0, 1]))
    assert values.isnan() and loss.memory[0].abs().max() == 0 and loss.memory[1].sum() > 0


def test_a_call_that_is_refused_leaves_nothing_behind():
    scores, _, _ = given()
    loss = EarlyLearning(samples=6, classes=5)
    with pytest.raises(ValueError, match=r"target must be in \[0, 4\]"):
        loss(scores, torch.full((6,), 5), index=torch.arange(6))
    assert loss.memory.abs().max() == 0


def test_evaluation_remembers_nothing_and_knows_cross_entropy():
    scores, target, _ = given()
    loss = EarlyLearning(samples=6, classes=5)
    loss(scores, target, index=torch.arange(6))
    kept = loss.memory.clone()
    loss.eval()
    again = loss(scores, target, index=torch.arange(6))
    torch.testing.assert_close(again, functional.early_learning(scores, target, kept, 3.0))
    assert torch.equal(loss(scores, target), functional.cross_entropy(scores, target))
    assert torch.equal(loss.memory, kept)


@pytest.mark.parametrize(
    "index",
    [None, torch.arange(5), list(range(6)), torch.arange(6) - 1, torch.arange(6) + 1, torch.arange(6) >= 0],
)
def test_an_index_that_names_no_samples_is_refused(index):
    scores, target, _ = given()
    with pytest.raises(ValueError, match=r"^index must "):
        EarlyLearning(6, 5)(scores, target, *([] if index is None else [index]))


def test_scores_that_are_no_batch_are_refused():
    scores, target, _ = given()
    for wrong, label in ((scores[0], target[0]), (scores.tolist(), target[:1])):
        with pytest.raises(ValueError, match=r"^scores must "):
            EarlyLearning(6, 5)(wrong, label, torch.zeros_like(label))
