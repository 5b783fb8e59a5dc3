"""The smooth top-K SVM as an autograd function with derivatives of every order and a rule for ``vmap``.

The loss of a row is ``τ softplus(x)``; its gradient is ``p (π^(K) - π^(K-1)) / K``, less ``p / K`` at the label, with
``p = sigmoid(x)``. What the gradient needs is computed along with the loss; the second derivative, which few ask
for, is that of the same loss written in plain differentiable operations, as ``torch.compile`` gets it too.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from topk_losses._checks import values_are_readable
from topk_losses._smooth_rows import Problem, Slope, rows_argument, slope_rows

__all__ = ["smooth_topk_rows"]

Margin = float | Tensor
CHUNK = 2**18  # scores worked on at once: what is kept per score then stays in the cache
CHUNK_TABLES = 2**22  # likewise for the entries of the tables of the classes split off


def smooth_topk_rows(scores: Tensor, labels: Tensor, margin: Margin, k: int, tau: float) -> Tensor:
    """The losses ``(N,)`` of scores ``(N, L)``, labels ``(N, 1)`` and a margin or one per row ``(N,)``."""
    if torch.compiler.is_compiling():
        return _plain_losses(scores, labels, margin, k, tau)
    outputs = _Losses.apply(scores, labels, margin, k, tau, torch.is_grad_enabled())
    losses: Tensor = outputs[0]
    return losses


def _plain_losses(scores: Tensor, labels: Tensor, margin: Margin, k: int, tau: float) -> Tensor:
    """The losses in operations that autograd, ``vmap`` and ``torch.compile`` see through."""
    argument, _ = rows_argument(scores, labels, margin, Problem(k, tau, adaptive=False, with_slope=False))
    return (-tau * logsigmoid(-argument)).to(scores.dtype)


class _Losses(torch.autograd.Function):
    """Outputs the losses, then p and the slopes' tensors for the gradient."""

    @staticmethod
    def forward(
        scores: Tensor, labels: Tensor, margin: Margin, k: int, tau: float, with_slope: bool
    ) -> tuple[Tensor, ...]:
        problem = Problem(k, tau, values_are_readable(scores) and scores.numel() > 0, with_slope)
        rows = _rows_at_once(scores, problem)
        arguments: list[Tensor] = []
        slopes: list[Tensor] = []
        for first in range(0, max(scores.shape[0], 1), rows):
            part = slice(first, first + rows)
            own_margin = margin[part] if isinstance(margin, Tensor) else margin
            argument, slope = rows_argument(scores[part], labels[part], own_margin, problem)
            arguments.append(argument)
            slopes.extend(slope)
        argument = arguments[0] if len(arguments) == 1 else torch.cat(arguments)
        losses = logsigmoid(-argument).mul_(-tau).to(scores.dtype)
        return (losses, argument.sigmoid(), *slopes)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        scores, labels, margin, ctx.k, ctx.tau, _ = inputs
        ctx.margin = None if isinstance(margin, Tensor) else margin
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(scores, labels, margin if ctx.margin is None else None, *output[1:])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        scores, labels, margin, probability, *slopes = ctx.saved_tensors
        margin = margin if ctx.margin is None else ctx.margin
        by_score, by_margin = _Gradient.apply(
            gradient, scores, labels, margin, ctx.k, ctx.tau, probability, *slopes
        )
        return by_score, None, by_margin if ctx.margin is None else None, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, Any]:
        merged = [_merge(x, dim, info.batch_size) for x, dim in zip(inputs[:3], in_dims[:3], strict=True)]
        losses, *rest = _Losses.apply(*merged, *inputs[3:])
        # What is kept for the gradient has all models' rows in one dimension and stays so: see _Gradient.vmap.
        return (losses.unflatten(0, (info.batch_size, -1)), *rest), (0, *[None] * len(rest))


class _Gradient(torch.autograd.Function):
    """The losses' gradient with respect to scores ``(N, L)`` and margins ``(N,)``, given that to the losses."""

    @staticmethod
    def forward(
        gradient: Tensor,
        scores: Tensor,
        labels: Tensor,
        margin: Margin,  # noqa: ARG004
        k: int,
        tau: float,
        probability: Tensor,
        *slopes: Tensor,
    ) -> tuple[Tensor, Tensor]:
        by_margin = (gradient * probability).to(gradient.dtype)
        factor = by_margin * (-1 / k)
        by_score = torch.empty_like(scores, memory_format=torch.contiguous_format)
        rows = _rows_at_once(scores, Problem(k, tau, len(slopes) > 4, with_slope=True))
        for i in range(0, len(slopes), 4):
            part = slice(i // 4 * rows, (i // 4 + 1) * rows)
            slope_rows(Slope(*slopes[i : i + 4]), labels[part], factor[part], by_score[part])
        return by_score, by_margin

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:  # noqa: ARG004
        gradient, scores, labels, margin, ctx.k, ctx.tau, *_ = inputs
        ctx.margin = None if isinstance(margin, Tensor) else margin
        ctx.save_for_backward(gradient, scores, labels, margin if ctx.margin is None else None)

    @staticmethod
    def backward(ctx: Any, by_score: Tensor, by_margin: Tensor) -> tuple[Tensor | None, ...]:
        gradient, scores, labels, margin = ctx.saved_tensors
        if ctx.margin is not None:
            margin = torch.full_like(gradient, ctx.margin)

        def weighted(scores: Tensor, margin: Tensor, gradient: Tensor) -> Tensor:
            return (gradient * _plain_losses(scores, labels, margin, ctx.k, ctx.tau)).sum()

        slopes = torch.func.grad(weighted, argnums=(0, 1))
        pull_back = torch.func.vjp(slopes, scores, margin, gradient)[1]
        second, second_margin, first = pull_back((by_score, by_margin))
        second_margin = second_margin if ctx.margin is None else None
        return first, second, None, second_margin, *[None] * (len(ctx.needs_input_grad) - 4)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, Any]:
        if in_dims[1:4] == (None, None, None):  # several gradients of one forward pass
            gradient = inputs[0].movedim(in_dims[0], 0)
            by_score, by_margin = _Gradient.apply(torch.ones_like(gradient[0]), *inputs[1:])
            return (gradient.unsqueeze(-1) * by_score, gradient * by_margin), (0, 0)
        merged = [_merge(x, dim, info.batch_size) for x, dim in zip(inputs[:4], in_dims[:4], strict=True)]
        by_score, by_margin = _Gradient.apply(*merged, *inputs[4:])
        models = (info.batch_size, -1)
        return (by_score.unflatten(0, models), by_margin.unflatten(0, models)), (0, 0)


def _rows_at_once(scores: Tensor, problem: Problem) -> int:
    """Rows worked on at once, all of them where kernels are launched on a device."""
    if not problem.adaptive:
        return max(1, scores.shape[0])
    return max(1, min(CHUNK // scores.shape[1], CHUNK_TABLES // (3 * problem.k**2)))


def _merge(tensor: Any, dim: int | None, models: int) -> Any:
    """The rows of all models in one dimension."""
    if not isinstance(tensor, Tensor):
        return tensor
    moved = tensor.expand(models, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
    return moved.flatten(0, 1)
