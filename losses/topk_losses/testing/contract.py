"""The contract of a loss: what a training script may take for granted, as tests to inherit."""

# ruff: noqa: D102 - the names of the tests are sentences

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

__all__ = ["LossContract"]


class LossContract:
    """Subclass it as ``Test…``, write :meth:`make`, and pytest runs every test on your loss.

    The class attributes say what the loss promises. A promise that is not made is a test skipped by name, never
    one that passes unseen.

    Attributes:
        classes: L of the scores that the tests use.
        shift_invariant: a constant added to all scores of a row changes nothing.
        class_symmetric: the classes are alike, no margins or counts of their own; so a permutation of the
            classes changes nothing, and a class masked with -inf is as if it were not there.
        soft_targets: floating-point targets ``(N, L)`` are taken.
        deterministic: no random draws; a loss that draws overrides :meth:`evaluate` to pass a generator.
        twice_differentiable: the second derivative exists, if only as 0.
        spatial: scores ``(N, L, ...)`` with targets ``(N, ...)`` are taken.
        weighted: ``make`` takes ``weight``.
        ignoring: ``make`` takes ``ignore_index``.
        compiles: the loss is one graph for ``torch.compile``, whatever the number of rows.
        vectorises: ``torch.func.vmap`` and ``grad`` work on the loss.

    Example:
        >>> from torch import nn
        >>> class TestTorchsCrossEntropy(LossContract):
        ...     soft_targets = True
        ...     def make(self, **shared):
        ...         return nn.CrossEntropyLoss(**shared)
        >>> TestTorchsCrossEntropy().test_mean_and_sum_are_those_of_the_rows()
    """

    classes = 7
    shift_invariant = True
    class_symmetric = True
    soft_targets = False
    deterministic = True
    twice_differentiable = True
    spatial = True
    weighted = True
    ignoring = True
    compiles = True
    vectorises = True

    def make(self, **shared: Any) -> nn.Module:
        """The loss under test, given any of ``reduction``, ``weight`` and ``ignore_index``."""
        raise NotImplementedError

    def evaluate(self, loss: Callable[..., Tensor], scores: Tensor, target: Tensor) -> Tensor:
        """``loss(scores, target)``; a loss that draws passes a freshly seeded generator here."""
        return loss(scores, target)

    def sample(self, rows: int = 6, seed: int = 0) -> tuple[Tensor, Tensor]:
        """Random float64 scores ``(rows, classes)`` and labels ``(rows,)``."""
        generator = torch.Generator().manual_seed(seed)
        scores = 2 * torch.randn(rows, self.classes, generator=generator, dtype=torch.float64)
        return scores, torch.randint(self.classes, (rows,), generator=generator)

    def each(self, scores: Tensor, target: Tensor, **shared: Any) -> Tensor:
        """The loss of every sample."""
        return self.evaluate(self.make(reduction="none", **shared), scores, target)

    def gradient(self, scores: Tensor, target: Tensor, loss: Callable[..., Tensor] | None = None) -> Tensor:
        """The gradient of the summed loss, in the scores' dtype."""
        leaf = scores.detach().requires_grad_()
        loss = self.make(reduction="sum") if loss is None else loss
        value = self.evaluate(loss, leaf, target)
        return torch.autograd.grad(value, leaf)[0]

    def promised(self, *attributes: str) -> None:
        """Skip the test unless the loss makes all these promises."""
        missing = [name for name in attributes if not getattr(self, name)]
        if missing:
            pytest.skip(f"not promised: {', '.join(missing)}")

    # Shapes and reductions

    def test_none_has_the_targets_shape(self) -> None:
        scores, target = self.sample()
        assert self.each(scores, target).shape == target.shape

    def test_mean_and_sum_are_those_of_the_rows(self) -> None:
        scores, target = self.sample()
        rows = self.each(scores, target)
        torch.testing.assert_close(self.evaluate(self.make(reduction="mean"), scores, target), rows.mean())
        torch.testing.assert_close(self.evaluate(self.make(reduction="sum"), scores, target), rows.sum())

    def test_batch_split_in_two(self) -> None:
        self.promised("deterministic")
        scores, target = self.sample()
        halves = [
            self.each(s, t) for s, t in zip(scores.tensor_split(2), target.tensor_split(2), strict=True)
        ]
        torch.testing.assert_close(torch.cat(halves), self.each(scores, target))

    def test_class_dimension_is_the_second(self) -> None:
        self.promised("spatial", "deterministic")
        scores, target = self.sample(rows=12)
        places = scores.reshape(2, 2, 3, self.classes).movedim(-1, 1)
        losses = self.each(places, target.reshape(2, 2, 3))
        torch.testing.assert_close(losses, self.each(scores, target).reshape(2, 2, 3))

    def test_weighted_mean_divides_by_the_weights(self) -> None:
        self.promised("weighted")
        scores, target = self.sample()
        weight = torch.arange(1, self.classes + 1, dtype=scores.dtype)
        rows, shares = self.each(scores, target), weight[target]
        torch.testing.assert_close(self.each(scores, target, weight=weight), rows * shares)
        mean = self.evaluate(self.make(reduction="mean", weight=weight), scores, target)
        torch.testing.assert_close(mean, (rows * shares).sum() / shares.sum())

    def test_ignored_labels_count_for_nothing(self) -> None:
        self.promised("ignoring")
        scores, target = self.sample()
        rows = self.each(scores, target)
        target[0] = -1
        loss = self.make(reduction="mean", ignore_index=-1)
        torch.testing.assert_close(self.evaluate(loss, scores, target), rows[1:].mean())
        assert self.gradient(scores, target, loss)[0].abs().max() == 0

    def test_soft_targets_mix_linearly(self) -> None:
        self.promised("soft_targets")
        scores, target = self.sample()
        other = target.roll(1)
        one, two = (nn.functional.one_hot(labels, self.classes).to(scores) for labels in (target, other))
        expected = 0.3 * self.each(scores, target) + 0.7 * self.each(scores, other)
        torch.testing.assert_close(self.each(scores, 0.3 * one + 0.7 * two), expected)

    # Invariances

    def test_constant_added_to_a_row(self) -> None:
        self.promised("shift_invariant")
        scores, target = self.sample()
        moved = scores + torch.linspace(-100, 100, len(scores), dtype=scores.dtype).unsqueeze(1)
        torch.testing.assert_close(self.each(moved, target), self.each(scores, target))
        torch.testing.assert_close(self.gradient(moved, target), self.gradient(scores, target))

    def test_gradient_of_a_row_sums_to_0(self) -> None:
        self.promised("shift_invariant")
        scores, target = self.sample()
        total = self.gradient(scores, target).sum(1)
        torch.testing.assert_close(total, torch.zeros_like(total), rtol=0, atol=1e-9)

    def test_permuted_classes(self) -> None:
        self.promised("class_symmetric", "deterministic")
        scores, target = self.sample()
        order = torch.randperm(self.classes, generator=torch.Generator().manual_seed(1))
        permuted, place = scores[:, order], order.argsort()[target]
        torch.testing.assert_close(self.each(permuted, place), self.each(scores, target))
        torch.testing.assert_close(
            self.gradient(permuted, place), self.gradient(scores, target)[:, order], atol=1e-9, rtol=1e-7
        )

    def test_masked_class_is_absent(self) -> None:
        self.promised("class_symmetric", "deterministic")
        scores, target = self.sample()
        target = target.clamp(max=self.classes - 2)
        masked = torch.cat([scores[:, :-1], torch.full_like(scores[:, :1], -torch.inf)], 1)
        torch.testing.assert_close(self.each(masked, target), self.each(scores[:, :-1], target))
        gradient = self.gradient(masked, target)
        torch.testing.assert_close(gradient[:, :-1], self.gradient(scores[:, :-1], target))
        assert gradient[:, -1].abs().max() == 0

    # Derivatives

    def test_gradient_is_the_derivative(self) -> None:
        scores, target = self.sample()
        scores.requires_grad_()
        assert torch.autograd.gradcheck(lambda s: self.each(s, target), scores)

    def test_second_derivative(self) -> None:
        self.promised("twice_differentiable")
        scores, target = self.sample()
        scores.requires_grad_()
        assert torch.autograd.gradgradcheck(lambda s: self.each(s, target), scores)

    # Numbers

    def test_large_scores_stay_finite(self) -> None:
        scores, target = self.sample()
        for size in (1.0, 30.0, 1000.0):
            wide = (size * scores / scores.abs().max()).float()
            assert self.each(wide, target).isfinite().all()
            assert self.gradient(wide, target).isfinite().all()

    def test_equal_scores_stay_finite(self) -> None:
        scores, target = self.sample()
        for level in (0.0, 1000.0):
            level_scores = torch.full_like(scores, level)
            assert self.each(level_scores, target).isfinite().all()
            assert self.gradient(level_scores, target).isfinite().all()

    def test_nan_stays_in_its_row(self) -> None:
        self.promised("deterministic")
        scores, target = self.sample()
        for column in range(self.classes):
            spoilt = scores.clone()
            spoilt[0, column] = torch.nan
            losses = self.each(spoilt, target)
            assert losses[0].isnan()
            torch.testing.assert_close(losses[1:], self.each(scores, target)[1:])
            torch.testing.assert_close(self.gradient(spoilt, target)[1:], self.gradient(scores, target)[1:])

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_half_precision_is_float32_on_the_rounded_scores(self, dtype: torch.dtype) -> None:
        scores, target = self.sample()
        half = scores.to(dtype)
        losses = self.each(half, target)
        assert losses.dtype == torch.float32
        torch.testing.assert_close(losses, self.each(half.float(), target), rtol=0, atol=0)
        expected = self.gradient(half.float(), target).to(dtype)
        torch.testing.assert_close(self.gradient(half, target), expected, rtol=0, atol=0)

    def test_autocast_changes_nothing(self) -> None:
        scores, target = self.sample()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            losses = self.each(scores.float(), target)
        torch.testing.assert_close(losses, self.each(scores.float(), target), rtol=0, atol=0)

    # Life in a training script

    def test_arguments_are_left_alone(self) -> None:
        scores, target = self.sample()
        kept = scores.clone(), target.clone()
        self.gradient(scores, target)
        assert torch.equal(scores, kept[0])
        assert torch.equal(target, kept[1])

    def test_copies_give_the_same(self) -> None:
        scores, target = self.sample()
        loss = self.make()
        value = self.evaluate(loss, scores, target)
        file = io.BytesIO()
        torch.save(loss, file)
        file.seek(0)
        for twin in (copy.deepcopy(loss), torch.load(file, weights_only=False)):
            assert repr(twin) == repr(loss)
            assert torch.equal(self.evaluate(twin, scores, target), value)

    def test_vmap_over_models(self) -> None:
        self.promised("vectorises", "deterministic")
        samples = [self.sample(seed=seed) for seed in range(3)]
        scores, target = (torch.stack(parts) for parts in zip(*samples, strict=True))
        loss = self.make()
        models = torch.func.vmap(torch.func.grad_and_value(loss))(scores, target)
        for model, (s, t) in enumerate(samples):
            torch.testing.assert_close(models[1][model], loss(s, t))
            torch.testing.assert_close(models[0][model], self.gradient(s, t, loss))

    def test_compiles_to_one_graph(self) -> None:
        self.promised("compiles", "deterministic")
        loss = self.make()
        torch._dynamo.reset()
        compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
        with torch._dynamo.config.patch(error_on_recompile=True):
            for rows in (6, 9):
                scores, target = self.sample(rows)
                scores.requires_grad_()
                for tensor in (scores, target):
                    torch._dynamo.mark_dynamic(tensor, 0)  # the number of rows is a symbol
                values = [self.evaluate(function, scores, target) for function in (compiled, loss)]
                torch.testing.assert_close(*values)
                torch.testing.assert_close(*(torch.autograd.grad(value, scores)[0] for value in values))

    # Complaints

    def test_wrong_arguments_are_named(self) -> None:
        scores, target = self.sample()
        wrong: dict[str, tuple[Tensor, Tensor]] = {
            "integer scores": (scores.long(), target),
            "one-dimensional scores": (scores[0], target),
            "too few labels": (scores, target[:-1]),
            "label too large": (scores, target.new_full(target.shape, self.classes)),
            "negative label": (scores, target.new_full(target.shape, -1)),
        }
        for bad_scores, bad_target in wrong.values():
            with pytest.raises(ValueError, match=r"scores|target"):
                self.evaluate(self.make(), bad_scores, bad_target)
