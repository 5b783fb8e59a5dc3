"""Losses with a hand-written gradient, higher derivatives, and support for ``vmap``.

A rule computes the losses of rows, and keeps the tensors from which it then computes the gradient. Second derivatives
and those in forward mode (``torch.func.jvp``, ``hessian``), which are rarely needed, come from the same loss written in
plain differentiable operations. ``torch.compile`` gets these operations, too, because it fuses them itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

import torch
from torch import Tensor

from topk_losses._core.shapes import computing

__all__ = ["Input", "Rule", "RuleOfLabels", "in_forward_mode", "losses_by"]

Input: TypeAlias = float | Tensor
"""A further input of a loss, such as its margin: one number, or one value per row ``(N,)``."""

Kept = TypeVar("Kept", bound=tuple[Tensor, ...])


class Rule(ABC, Generic[Kept]):
    """One loss in one backend: scores ``(N, L)`` and labels ``(N, 1)``, or ``(N,)`` if complete, to losses.

    Further inputs, such as a margin, come after the labels, in the same order everywhere.

    Attributes:
        keeps: The named tuple of what :meth:`forward` keeps; None for a plain tuple.
        complete: Whether the rule takes labels ``(N,)`` and handles ignored labels (loss 0) and masked targets (loss
            +inf) itself, see :func:`~topk_losses._core.reduction.reduce_complete`. Kernels do this in passing, which
            saves launching others.
        narrow: Whether the rule reads half-precision scores directly; otherwise they are converted to float32 first.
        passes_nan: Whether :meth:`backward` returns NaN for a row whose loss is NaN. Otherwise it is given NaN for it,
            which takes a GPU three further launches.
    """

    keeps: ClassVar[Callable[..., Any] | None] = None
    complete: ClassVar[bool] = False
    narrow: ClassVar[bool] = False
    passes_nan: ClassVar[bool] = False

    @abstractmethod
    def plain(self, scores: Tensor, labels: Tensor, *inputs: Any, **options: Any) -> Tensor:
        """The losses in plain operations, for derivatives of any kind and ``torch.compile``."""

    @abstractmethod
    def forward(self, scores: Tensor, labels: Tensor, *inputs: Any, **options: Any) -> tuple[Tensor, Kept]:
        """The losses, and the tensors that the gradient needs; the option ``with_gradient`` says if it is needed."""

    @abstractmethod
    def backward(
        self, gradient: Tensor, scores: Tensor, labels: Tensor, kept: Kept
    ) -> tuple[Tensor | None, ...]:
        """The gradient with respect to scores ``(N, L)`` and each input ``(N,)``, given that of the losses ``(N,)``.

        None for an input that has no gradient.
        """

    def again(self, scores: Tensor, labels: Tensor, inputs: Sequence[Any], kept: Kept) -> Tensor:  # noqa: ARG002
        """The losses recomputed in differentiable operations; a rule that draws reuses the draws that it kept."""
        return self.plain(scores, labels, *inputs)


class RuleOfLabels(Rule[Kept]):
    """A rule that also has its losses for several labels per row, in differentiable operations."""

    @abstractmethod
    def of_labels(self, rows: Tensor, labels: Tensor) -> Tensor:
        """The losses ``(M, C)`` of rows ``(M, L)`` for labels ``(M, C)``, in differentiable operations."""

    def plain(self, scores: Tensor, labels: Tensor) -> Tensor:
        """The losses of one label per row."""
        return self.of_labels(scores, labels).squeeze(1)

    def losses(self, rows: Tensor, labels: Tensor) -> Tensor:
        """The losses ``(M, C)`` for labels ``(M, C)``: by the rule's own gradient where C = 1."""
        if labels.shape[1] == 1:
            return losses_by(self, rows, labels).unsqueeze(1)
        return self.of_labels(rows, labels)


def losses_by(
    rule: Rule[Any], scores: Tensor, labels: Tensor, *inputs: Input, count: int | Tensor | None = None
) -> Tensor:
    """The rule's losses ``(N,)`` of scores ``(N, L)`` and labels ``(N, 1)``, or ``(N,)`` for a complete rule.

    With ``count`` it is their sum divided by this count, in one node of the graph: every further node costs Python as
    much time as a small kernel.
    """
    scores = scores if rule.narrow else computing(scores)
    if torch.compiler.is_compiling() or in_forward_mode():
        losses = rule.plain(scores, labels, *inputs)
    elif torch._C._functorch.peek_interpreter_stack() is not None:
        losses = _Transformed.apply(rule, torch.is_grad_enabled(), scores, labels, *inputs)[0]
    elif torch.is_grad_enabled() and any(
        getattr(value, "requires_grad", False) for value in (scores, *inputs)
    ):
        result: Tensor = _Losses.apply(rule, count, scores, labels, *inputs)
        return result
    else:
        losses = rule.forward(scores, labels, *inputs, with_gradient=False)[0]
    return losses if count is None else losses.sum() / count


def in_forward_mode() -> bool:
    """Whether derivatives are computed in forward mode."""
    return torch.autograd.forward_ad._current_level >= 0


class _Losses(torch.autograd.Function):
    """The losses, or their sum divided by a count; their context keeps what the gradient needs."""

    @staticmethod
    def forward(
        ctx: Any, rule: Rule[Any], count: Any, scores: Tensor, labels: Tensor, *inputs: Any
    ) -> Tensor:
        losses, kept = rule.forward(scores, labels, *inputs, with_gradient=True)
        _keep(ctx, rule, scores, labels, inputs, losses, kept)
        ctx.count = count
        return losses if count is None else losses.sum() / count

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, *_gradients(ctx, gradient)


class _Transformed(torch.autograd.Function):
    """Inside ``torch.func``: outputs the losses, followed by the tensors kept, which could not be saved otherwise."""

    @staticmethod
    def forward(*arguments: Any) -> tuple[Tensor, ...]:
        rule, with_gradient, scores, labels, *inputs = arguments
        losses, kept = rule.forward(scores, labels, *inputs, with_gradient=with_gradient)
        return (losses, *kept)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        rule, _, scores, labels, *rest = inputs
        losses, *kept = output
        ctx.mark_non_differentiable(*kept)
        ctx.set_materialize_grads(False)  # else torch makes gradients of zeros for all kept tensors
        _keep(ctx, rule, scores, labels, rest, losses, kept)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        if gradient is None:
            return (None,) * (4 + len(ctx.numbers))
        return None, None, *_gradients(ctx, gradient)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[Any, Any]:
        merged = _merged(info.batch_size, in_dims[2:], arguments[2:])
        losses, *kept = _Transformed.apply(*arguments[:2], *merged)
        # The kept tensors stay with the rows of all models in one dimension: _Gradient.vmap expects them so.
        return (losses.unflatten(0, (info.batch_size, -1)), *kept), (0, *[None] * len(kept))


def _keep(
    ctx: Any,
    rule: Rule[Any],
    scores: Tensor,
    labels: Tensor,
    inputs: Sequence[Any],
    losses: Tensor,
    kept: Sequence[Tensor],
) -> None:
    ctx.rule = rule
    ctx.numbers = tuple([None if isinstance(value, Tensor) else value for value in inputs])
    tensors = [value for value in inputs if isinstance(value, Tensor)]
    ctx.save_for_backward(losses, scores, labels, *tensors, *kept)


def _gradients(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    """The gradients with respect to the scores, the labels and each input."""
    losses, scores, labels, *tensors = ctx.saved_tensors
    differentiated = torch.is_grad_enabled()  # the caller will differentiate this gradient
    if gradient.ndim == 0:  # that of the sum divided by a count
        if (
            isinstance(ctx.count, int)
            and gradient.is_cpu
            and not differentiated
            and not _is_batched(gradient)
        ):
            gradient = torch.full_like(losses, gradient.item() / ctx.count)  # the same in half the time
        else:
            gradient = (gradient / ctx.count).expand_as(losses)
    if differentiated or not ctx.rule.passes_nan:
        # A row whose loss is NaN must have a gradient of NaN; many rules would return finite numbers.
        gradient = gradient.masked_fill(losses.isnan(), torch.nan)
    if differentiated:
        slopes = _Gradient.apply(ctx.rule, ctx.numbers, gradient, scores, labels, *tensors)
    else:
        slopes = _slopes(ctx.rule, ctx.numbers, gradient, scores, labels, tensors)
    by_score, *by_input = slopes
    return by_score, None, *[s if n is None else None for s, n in zip(by_input, ctx.numbers, strict=True)]


class _Gradient(torch.autograd.Function):
    """The gradient with respect to scores ``(N, L)`` and inputs ``(N,)``, given that of the losses ``(N,)``."""

    @staticmethod
    def forward(*arguments: Any) -> tuple[Tensor | None, ...]:
        rule, numbers, gradient, scores, labels, *tensors = arguments
        return _slopes(rule, numbers, gradient, scores, labels, tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:  # noqa: ARG004
        ctx.rule, ctx.numbers, *tensors = inputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, by_score: Tensor | None, *by_input: Tensor | None) -> tuple[Tensor | None, ...]:
        gradient, scores, labels, *tensors = ctx.saved_tensors
        waiting = iter(tensors)
        inputs = [next(waiting) if number is None else number for number in ctx.numbers]
        kept = _kept(ctx.rule, tuple(waiting))
        given = [i for i, number in enumerate(ctx.numbers) if number is None]
        indices = [i for i in given if inputs[i].is_floating_point()]

        def weighted(scores: Tensor, gradient: Tensor, *chosen: Tensor) -> Tensor:
            own = {**dict(enumerate(inputs)), **dict(zip(indices, chosen, strict=True))}
            losses: Tensor = ctx.rule.again(scores, labels, list(own.values()), kept)
            return (gradient * losses).sum()

        chosen = [inputs[index] for index in indices]
        slopes = torch.func.grad(weighted, argnums=(0, *range(2, 2 + len(indices))))
        pull_back = torch.func.vjp(slopes, scores, gradient, *chosen)[1]
        along = [(by_score, scores), *((by_input[index], gradient) for index in indices)]
        by_scores, by_gradient, *rest = pull_back(
            tuple(torch.zeros_like(like) if slope is None else slope for slope, like in along)
        )
        by_index = dict(zip(indices, rest, strict=True))
        constants = len(tensors) - len(given)
        return None, None, by_gradient, by_scores, None, *map(by_index.get, given), *[None] * constants

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[Any, Any]:
        models = (info.batch_size, -1)
        if not any(dim is not None for dim in in_dims[3:]):  # several gradients of one forward pass
            gradient = arguments[2].movedim(in_dims[2], 0)
            by_ones = _Gradient.apply(*arguments[:2], torch.ones_like(gradient[0]), *arguments[3:])
            scaled = _scaled(gradient, by_ones)
            return scaled, tuple(None if slope is None else 0 for slope in scaled)
        count = 3 + arguments[1].count(None)
        merged = _merged(info.batch_size, in_dims[2 : 2 + count], arguments[2 : 2 + count])
        slopes = _Gradient.apply(*arguments[:2], *merged, *arguments[2 + count :])
        split = tuple(None if slope is None else slope.unflatten(0, models) for slope in slopes)
        return split, tuple(None if slope is None else 0 for slope in split)


def _slopes(
    rule: Rule[Any],
    numbers: Sequence[float | None],
    gradient: Tensor,
    scores: Tensor,
    labels: Tensor,
    tensors: Sequence[Tensor],
) -> tuple[Tensor | None, ...]:
    """The rule's own gradient.

    A batched ``gradient`` cannot be read by kernels: then the gradient for ones is computed and scaled by it.
    """
    kept = _kept(rule, tensors[numbers.count(None) :])
    if _is_batched(gradient):
        ones = torch.ones(len(scores), dtype=gradient.dtype, device=scores.device)
        return _scaled(gradient, rule.backward(ones, scores, labels, kept))
    return rule.backward(gradient, scores, labels, kept)


def _is_batched(gradient: Tensor) -> bool:
    """Whether a gradient stands for several, as with ``is_grads_batched`` and in ``torch.func``."""
    functorch = torch._C._functorch
    return functorch.is_legacy_batchedtensor(gradient) or functorch.is_functorch_wrapped_tensor(gradient)


def _scaled(gradient: Tensor, slopes: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
    """The slopes of scores ``(N, L)`` and inputs ``(N,)`` for a gradient of ones, times the gradient of the losses."""
    by_score, *by_input = slopes
    first = None if by_score is None else gradient.unsqueeze(-1) * by_score
    return first, *(None if slope is None else gradient * slope for slope in by_input)


def _kept(rule: Rule[Any], tensors: Sequence[Tensor]) -> Any:
    return tensors if rule.keeps is None else rule.keeps(*tensors)


def _merged(models: int, dims: Sequence[int | None], values: Sequence[Any]) -> list[Any]:
    """Tensors with the rows of all models merged into one dimension; numbers unchanged."""
    merged = []
    for value, dim in zip(values, dims, strict=True):
        if isinstance(value, Tensor):
            moved = value.expand(models, *value.shape) if dim is None else value.movedim(dim, 0)
            merged.append(moved.flatten(0, 1))
        else:
            merged.append(value)
    return merged
