"""Losses with a hand-written gradient: derivatives of every order, and a rule for ``vmap``.

A rule computes the losses of rows together with what their gradient needs, and the gradient from that. Second
derivatives, which few ask for, are those of the same loss written in plain differentiable operations, as
``torch.compile`` gets it too: it fuses them itself.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

__all__ = ["Margin", "Rule", "fused_losses"]

Margin = float | Tensor


class Rule(Protocol):
    """One loss: scores ``(N, L)``, labels ``(N, 1)``, a margin or one per row ``(N,)``; losses ``(N,)``."""

    def plain(self, scores: Tensor, labels: Tensor, margin: Margin) -> Tensor:
        """The losses in operations that autograd, ``vmap`` and ``torch.compile`` see through."""
        ...

    def forward(
        self, scores: Tensor, labels: Tensor, margin: Margin, with_gradient: bool
    ) -> tuple[Tensor, list[Tensor]]:
        """The losses, and the tensors that the gradient needs."""
        ...

    def backward(
        self, gradient: Tensor, scores: Tensor, labels: Tensor, saved: list[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """The gradient with respect to the scores ``(N, L)`` and the margins ``(N,)``, given that to the losses."""
        ...


def fused_losses(rule: Rule, scores: Tensor, labels: Tensor, margin: Margin = 0.0) -> Tensor:
    """The rule's losses ``(N,)`` of scores ``(N, L)`` and labels ``(N, 1)``."""
    if torch.compiler.is_compiling():
        return rule.plain(scores, labels, margin)
    losses: Tensor = _Losses.apply(scores, labels, margin, rule, torch.is_grad_enabled())[0]
    return losses


class _Losses(torch.autograd.Function):
    """Outputs the losses, then what is kept for the gradient."""

    @staticmethod
    def forward(
        *inputs: Any,
    ) -> tuple[Tensor, ...]:  # torch binds arguments by signature: slow if there are many
        scores, labels, margin, rule, with_gradient = inputs
        losses, saved = rule.forward(scores, labels, margin, with_gradient)
        return (losses, *saved)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        scores, labels, margin, ctx.rule, _ = inputs
        ctx.margin = None if isinstance(margin, Tensor) else margin
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)  # else zeros are made for all that is kept
        ctx.save_for_backward(scores, labels, margin if ctx.margin is None else None, *output[1:])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        if gradient is None:
            return None, None, None, None, None
        scores, labels, margin, *saved = ctx.saved_tensors
        margin = margin if ctx.margin is None else ctx.margin
        if torch.is_grad_enabled():  # somebody wants this differentiated again
            by_score, by_margin = _Gradient.apply(gradient, scores, labels, margin, ctx.rule, *saved)
        else:
            by_score, by_margin = ctx.rule.backward(gradient, scores, labels, saved)
        return by_score, None, by_margin if ctx.margin is None else None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, Any]:
        merged = [_merge(x, dim, info.batch_size) for x, dim in zip(inputs[:3], in_dims[:3], strict=True)]
        losses, *saved = _Losses.apply(*merged, *inputs[3:])
        # What is kept for the gradient has all models' rows in one dimension and stays so: see _Gradient.vmap.
        return (losses.unflatten(0, (info.batch_size, -1)), *saved), (0, *[None] * len(saved))


class _Gradient(torch.autograd.Function):
    """The losses' gradient with respect to scores ``(N, L)`` and margins ``(N,)``, given that to the losses."""

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, Tensor]:
        gradient, scores, labels, _, rule, *saved = inputs
        by_score, by_margin = rule.backward(gradient, scores, labels, saved)
        return by_score, by_margin

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:  # noqa: ARG004
        gradient, scores, labels, margin, ctx.rule, *saved = inputs
        ctx.margin = None if isinstance(margin, Tensor) else margin
        ctx.constants = len(saved)
        ctx.save_for_backward(gradient, scores, labels, margin if ctx.margin is None else None)

    @staticmethod
    def backward(ctx: Any, by_score: Tensor, by_margin: Tensor) -> tuple[Tensor | None, ...]:
        gradient, scores, labels, margin = ctx.saved_tensors
        if ctx.margin is not None:
            margin = torch.full_like(gradient, ctx.margin)

        def weighted(scores: Tensor, margin: Tensor, gradient: Tensor) -> Tensor:
            losses: Tensor = ctx.rule.plain(scores, labels, margin)
            return (gradient * losses).sum()

        slopes = torch.func.grad(weighted, argnums=(0, 1))
        pull_back = torch.func.vjp(slopes, scores, margin, gradient)[1]
        by_scores, by_margins, by_gradient = pull_back((by_score, by_margin))
        by_margins = by_margins if ctx.margin is None else None
        return by_gradient, by_scores, None, by_margins, *[None] * (1 + ctx.constants)

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


def _merge(tensor: Any, dim: int | None, models: int) -> Any:
    """The rows of all models in one dimension."""
    if not isinstance(tensor, Tensor):
        return tensor
    moved: Tensor = tensor.expand(models, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
    return moved.flatten(0, 1)
