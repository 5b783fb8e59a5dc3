"""The contract of a loss: the properties that a training script relies on, as tests to inherit."""

# ruff: noqa: D102 - the names of the tests are sentences

from __future__ import annotations

import copy
import io
import itertools
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

__all__ = ["LossContract"]


class LossContract:
    """Tests of a loss: name a subclass ``Test…``, define :meth:`make`, and pytest runs every test on your loss.

    The class attributes say which properties the loss has. The tests of a property that is set to False are skipped,
    with the property's name as the reason. A failing assertion names the case that failed.

    Attributes:
        classes: L, the number of classes of the test scores.
        dtype: Dtype of the test scores. float64 reveals wrong formulas, float32 errors of kernels and rounding.
        shift_invariant: A constant added to all scores of a row changes nothing.
        class_symmetric: No class has a margin or count of its own. Permuting the classes changes nothing, and masking
            a class with -inf has the same effect as removing it.
        soft_targets: The loss takes floating-point targets ``(N, L)``.
        deterministic: The loss draws nothing at random. One that does overrides :meth:`evaluate`.
        derivable: The gradient is the derivative of the value. False for a loss that treats a part of it as constant.
        twice_differentiable: The second derivative exists; it may be 0.
        spatial: The loss takes scores ``(N, L, ...)`` with targets ``(N, ...)``, and a single row ``(L,)``.
        weighted: ``make`` takes ``weight``.
        ignoring: ``make`` takes ``ignore_index``.
        compiles: ``torch.compile`` makes one graph of the loss that serves any number of rows.
        vectorises: ``torch.func.vmap`` and ``grad`` work on the loss.
        float32_inside: Half-precision scores are computed in float32, and the loss is float32.
        names_arguments: Wrong scores and targets raise a ``ValueError`` that names them.

    Example:
        >>> from torch import nn
        >>> class TestTorchsCrossEntropy(LossContract):
        ...     soft_targets = True
        ...     float32_inside = names_arguments = False
        ...     def make(self, **shared):
        ...         return nn.CrossEntropyLoss(**shared)
        >>> TestTorchsCrossEntropy().test_mean_and_sum_are_those_of_the_rows()
    """

    classes = 7
    dtype = torch.float64
    shift_invariant = True
    class_symmetric = True
    soft_targets = False
    deterministic = True
    derivable = True
    twice_differentiable = True
    spatial = True
    weighted = True
    ignoring = True
    compiles = True
    vectorises = True
    float32_inside = True
    names_arguments = True

    def make(self, **shared: Any) -> nn.Module:
        """Return the loss under test, given any of ``reduction``, ``weight`` and ``ignore_index``."""
        raise NotImplementedError

    def evaluate(self, loss: Callable[..., Tensor], scores: Tensor, target: Tensor) -> Tensor:
        """Return ``loss(scores, target)``; override it for a loss that draws, to pass a freshly seeded generator."""
        return loss(scores, target)

    def sample(self, rows: int = 6, seed: int = 0) -> tuple[Tensor, Tensor]:
        """Return random scores ``(rows, classes)`` and labels ``(rows,)``."""
        generator = torch.Generator().manual_seed(seed)
        scores = 2 * torch.randn(rows, self.classes, generator=generator, dtype=torch.float64).to(self.dtype)
        return scores, torch.randint(self.classes, (rows,), generator=generator)

    def each(self, scores: Tensor, target: Tensor, **shared: Any) -> Tensor:
        """Return the loss of each sample."""
        return self.evaluate(self.make(reduction="none", **shared), scores, target)

    def gradient(self, scores: Tensor, target: Tensor, loss: Callable[..., Tensor] | None = None) -> Tensor:
        """Return the gradient of the summed loss, in the scores' dtype."""
        leaf = scores.detach().requires_grad_()
        loss = self.make(reduction="sum") if loss is None else loss
        value = self.evaluate(loss, leaf, target)
        return torch.autograd.grad(value, leaf)[0]

    def promised(self, *attributes: str) -> None:
        """Skip the test unless the loss has all these properties."""
        missing = [name for name in attributes if not getattr(self, name)]
        if missing:
            pytest.skip(f"not promised: {', '.join(missing)}")

    def agree(self, actual: Tensor, expected: Tensor, case: str = "") -> None:
        """Assert that two tensors are equal up to rounding."""
        tolerance: dict[str, Any] = {} if self.dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-4}
        torch.testing.assert_close(
            actual, expected, **tolerance, msg=lambda message: f"{case}: {message}" if case else message
        )

    # Shapes and reductions

    def test_none_has_the_targets_shape(self) -> None:
        scores, target = self.sample()
        assert self.each(scores, target).shape == target.shape

    def test_mean_and_sum_are_those_of_the_rows(self) -> None:
        scores, target = self.sample()
        rows = self.each(scores, target)
        self.agree(self.evaluate(self.make(reduction="mean"), scores, target), rows.mean())
        self.agree(self.evaluate(self.make(reduction="sum"), scores, target), rows.sum())

    def test_batch_split_in_two(self) -> None:
        self.promised("deterministic")
        scores, target = self.sample()
        halves = [
            self.each(s, t) for s, t in zip(scores.tensor_split(2), target.tensor_split(2), strict=True)
        ]
        self.agree(torch.cat(halves), self.each(scores, target))

    def test_class_dimension_is_the_second(self) -> None:
        self.promised("spatial", "deterministic")
        scores, target = self.sample(rows=12)
        places = scores.reshape(2, 2, 3, self.classes).movedim(-1, 1)
        losses = self.each(places, target.reshape(2, 2, 3))
        self.agree(losses, self.each(scores, target).reshape(2, 2, 3))

    def test_a_single_row_is_a_batch_of_one(self) -> None:
        self.promised("spatial", "deterministic")
        scores, target = self.sample()
        self.agree(self.each(scores[0], target[0]), self.each(scores, target)[0])

    def test_weighted_mean_divides_by_the_weights(self) -> None:
        self.promised("weighted")
        scores, target = self.sample()
        weight = torch.arange(1, self.classes + 1, dtype=scores.dtype)
        rows, shares = self.each(scores, target), weight[target]
        self.agree(self.each(scores, target, weight=weight), rows * shares)
        mean = self.evaluate(self.make(reduction="mean", weight=weight), scores, target)
        self.agree(mean, (rows * shares).sum() / shares.sum())

    def test_ignored_labels_count_for_nothing(self) -> None:
        self.promised("ignoring")
        scores, target = self.sample()
        rows = self.each(scores, target)
        target[0] = -1
        loss = self.make(reduction="mean", ignore_index=-1)
        self.agree(self.evaluate(loss, scores, target), rows[1:].mean())
        assert self.gradient(scores, target, loss)[0].abs().max() == 0

    def test_soft_targets_mix_linearly(self) -> None:
        self.promised("soft_targets")
        scores, target = self.sample()
        other = target.roll(1)
        first, second = (nn.functional.one_hot(labels, self.classes).to(scores) for labels in (target, other))
        expected = 0.3 * self.each(scores, target) + 0.7 * self.each(scores, other)
        self.agree(self.each(scores, 0.3 * first + 0.7 * second), expected)

    # Invariances

    def test_constant_added_to_a_row(self) -> None:
        self.promised("shift_invariant")
        scores, target = self.sample()
        moved = scores + torch.linspace(-100, 100, len(scores), dtype=scores.dtype).unsqueeze(1)
        self.agree(self.each(moved, target), self.each(scores, target))
        self.agree(self.gradient(moved, target), self.gradient(scores, target))

    def test_gradient_of_a_row_sums_to_0(self) -> None:
        self.promised("shift_invariant")
        scores, target = self.sample()
        total = self.gradient(scores, target).sum(1)
        bound = 1e-9 if self.dtype == torch.float64 else 1e-4
        assert total.abs().max() <= bound, f"sums of rows: {total.tolist()}"

    def test_permuted_classes(self) -> None:
        self.promised("class_symmetric", "deterministic")
        scores, target = self.sample()
        order = torch.randperm(self.classes, generator=torch.Generator().manual_seed(1))
        permuted, moved = scores[:, order], order.argsort()[target]
        self.agree(self.each(permuted, moved), self.each(scores, target))
        self.agree(self.gradient(permuted, moved), self.gradient(scores, target)[:, order])

    def test_masked_class_is_absent(self) -> None:
        self.promised("class_symmetric", "deterministic")
        scores, target = self.sample()
        target = target.clamp(max=self.classes - 2)
        masked = torch.cat([scores[:, :-1], torch.full_like(scores[:, :1], -torch.inf)], 1)
        self.agree(self.each(masked, target), self.each(scores[:, :-1], target))
        gradient = self.gradient(masked, target)
        self.agree(gradient[:, :-1], self.gradient(scores[:, :-1], target))
        assert gradient[:, -1].abs().max() == 0

    # Derivatives

    def test_gradient_is_the_derivative(self) -> None:
        self.promised("derivable")
        scores, target = self.sample()
        scores = scores.double().requires_grad_()
        assert torch.autograd.gradcheck(lambda s: self.each(s, target), scores)

    def test_second_derivative(self) -> None:
        self.promised("derivable", "twice_differentiable")
        scores, target = self.sample(rows=3)
        scores = scores.double().requires_grad_()
        assert torch.autograd.gradgradcheck(lambda s: self.each(s, target), scores)

    # Numbers

    def test_large_scores_stay_finite(self) -> None:
        scores, target = self.sample()
        for size in (1.0, 30.0, 1000.0):
            wide = (size * scores / scores.abs().max()).float()
            assert self.each(wide, target).isfinite().all(), f"losses of scores up to {size}"
            assert self.gradient(wide, target).isfinite().all(), f"gradient at scores up to {size}"

    def test_equal_scores_stay_finite(self) -> None:
        scores, target = self.sample()
        for level in (0.0, 1000.0):
            level_scores = torch.full_like(scores, level)
            assert self.each(level_scores, target).isfinite().all(), f"losses of scores that are all {level}"
            assert self.gradient(level_scores, target).isfinite().all(), f"gradient where all are {level}"

    def test_a_row_with_nan_or_infinity_is_nan_and_others_are_not(self) -> None:
        """The loss of the row and some of its gradient are NaN, so that a gradient scaler notices overflow."""
        self.promised("deterministic")
        scores, target = self.sample()
        columns = {"the label's": int(target[0]), "another's": int(target[0] + 1) % self.classes}
        for value, (whose, column) in itertools.product((torch.nan, torch.inf), columns.items()):
            case = f"{value} as {whose} score"
            spoilt = scores.clone()
            spoilt[0, column] = value
            losses, gradient = self.each(spoilt, target), self.gradient(spoilt, target)
            assert losses[0].isnan(), f"{case}: the loss is {losses[0]}"
            assert not gradient[0].isfinite().all(), f"{case}: the gradient is {gradient[0].tolist()}"
            self.agree(losses[1:], self.each(scores, target)[1:], case)
            self.agree(gradient[1:], self.gradient(scores, target)[1:], case)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_half_precision_is_float32_on_the_rounded_scores(self, dtype: torch.dtype) -> None:
        self.promised("float32_inside")
        scores, target = self.sample()
        half = scores.to(dtype)
        losses = self.each(half, target)
        assert losses.dtype == torch.float32
        assert torch.equal(losses, self.each(half.float(), target))
        expected = self.gradient(half.float(), target).to(dtype)
        assert torch.equal(self.gradient(half, target), expected)

    def test_autocast_changes_nothing(self) -> None:
        scores, target = self.sample()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            losses = self.each(scores.float(), target)
        assert torch.equal(losses, self.each(scores.float(), target))

    # Use in a training script

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
            self.agree(models[1][model], loss(s, t))
            self.agree(models[0][model], self.gradient(s, t, loss))

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
                    torch._dynamo.mark_dynamic(tensor, 0)  # any number of rows
                values = [self.evaluate(function, scores, target) for function in (compiled, loss)]
                slopes = [torch.autograd.grad(value, scores)[0] for value in values]
                self.agree(values[0], values[1], f"{rows} rows")
                self.agree(slopes[0], slopes[1], f"gradient of {rows} rows")

    # Errors

    def test_wrong_arguments_are_named(self) -> None:
        self.promised("names_arguments")
        scores, target = self.sample()
        wrong: dict[str, tuple[Tensor, Tensor]] = {
            "integer scores": (scores.long(), target),
            "one-dimensional scores": (scores[0], target),
            "too few labels": (scores, target[:-1]),
            "label too large": (scores, target.new_full(target.shape, self.classes)),
            "negative label": (scores, target.new_full(target.shape, -1)),
        }
        for case, (bad_scores, bad_target) in wrong.items():
            try:
                self.evaluate(self.make(), bad_scores, bad_target)
                message = "nothing"
            except ValueError as error:
                message = str(error)
            assert re.search("scores|target", message), f"{case}: the loss complains of {message}"
