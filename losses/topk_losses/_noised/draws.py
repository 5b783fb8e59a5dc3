"""Draws of the k-th largest noisy score: its class in each draw, and its mean noise.

For long rows whose values can be read, only values that exceed a threshold are drawn, as ``exceedances.py`` explains
and proves. It also chooses the thresholds; ``columns.py`` draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from topk_losses._core import numba
from topk_losses._core.backends import choose
from topk_losses._core.checks import values_are_readable
from topk_losses._noised import cpu
from topk_losses._noised.columns import Columns
from topk_losses._noised.exceedances import find_threshold
from topk_losses._noised.kth_largest import LONGEST, kth_largest
from topk_losses._rows.selection import grouped

__all__ = ["Draws", "Generators", "check_generators", "noised_draws", "seeds_of", "shares"]

SHORTEST = 64  # rows with fewer classes than this, or than 8 k, are drawn in full
FEW_CLASSES, MANY_DRAWS = 48, 2**11  # for so few classes and so many draws, draws are sorted side by side
SCORES_AT_ONCE = 2**20  # scores whose exceedances are drawn at once, to fit into the cache
COLUMNS_AT_ONCE = 2**14  # columns that are sorted at once, for the same reason
CACHED = 2**18  # numbers drawn in full for several generators at once, for the same reason


class Draws(NamedTuple):
    """The k-th largest of ``s + εZ`` of each row."""

    classes: Tensor
    """Its class in each draw ``(N, B)``."""
    noise: Tensor
    """The mean of its noise εZ over the draws ``(N,)``."""


def noised_draws(
    scores: Tensor,
    k: int,
    epsilon: float,
    samples: int,
    noise: Tensor | None = None,
    generator: Generators = None,
) -> Draws:
    """Return draws for scores ``(N, L)``, with the noise ``(B, N, L)`` if it is given; without gradient.

    Several generators divide the rows evenly, in order, and each draws what it would draw for its share alone.
    """
    scores = scores.detach()
    rows, classes = scores.shape
    if noise is not None or epsilon == 0:
        return _in_full(scores, k, epsilon, samples, noise, generator)
    if rows and choose("noise", numba=lambda _: cpu.refusal(scores, k, epsilon)) == "numba":
        return _compiled(scores, k, epsilon, samples, generator)
    if rows and classes >= max(SHORTEST, 8 * k) and values_are_readable(scores):
        at_once = max(1, SCORES_AT_ONCE // classes)
        return _joined(
            [
                _by_exceedances(part, k, epsilon, samples, source)
                for share, source in shares(scores, generator)
                for part in torch.split(share, at_once)
            ]
        )
    alone = generator is None or isinstance(generator, torch.Generator)
    if alone or samples * scores.numel() <= CACHED:
        return _in_full(scores, k, epsilon, samples, None, generator)
    parts = [_in_full(part, k, epsilon, samples, None, source) for part, source in shares(scores, generator)]
    return _joined(parts)


def _joined(parts: Sequence[Draws]) -> Draws:
    if len(parts) == 1:
        return parts[0]
    return Draws(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))


def _compiled(scores: Tensor, k: int, epsilon: float, samples: int, generator: Generators) -> Draws:
    check_generators(generator, len(scores))
    seeds = seeds_of(generator, scores.device).tolist()
    drawn = cpu.draw(numba.array(scores), k, epsilon, samples, seeds)
    classes, noise = (torch.from_numpy(array) for array in drawn)
    unusual = classes[:, 0] < 0
    if unusual.any():  # rows that cannot be drawn for get the k-th largest of their scores, without noise
        classes[unusual], noise[unusual] = scores[unusual].topk(k).indices[:, -1:], 0
    return Draws(classes, noise)


def _in_full(
    scores: Tensor, k: int, epsilon: float, samples: int, noise: Tensor | None, generator: Generators
) -> Draws:
    if epsilon == 0:
        classes = scores.topk(k).indices[:, -1:]
        return Draws(classes, torch.zeros_like(scores[:, 0]))
    if noise is None:
        drawn = [_normal(samples, share, source) for share, source in shares(scores, generator)]
        noise = (drawn[0] if len(drawn) == 1 else torch.cat(drawn, 1)).mul_(epsilon)
    else:
        noise = epsilon * noise.detach().to(scores.dtype)
    # Relative to the k-th largest score, so that the noise is not rounded away beside large scores.
    hard = scores.topk(k).values[:, -1:]
    noisy = scores - hard.masked_fill(hard == -torch.inf, 0) + noise
    few = k <= LONGEST and scores.shape[1] <= FEW_CLASSES and len(noise) * len(scores) >= MANY_DRAWS
    if few and values_are_readable(scores):
        columns = noisy.permute(2, 0, 1).reshape(noisy.shape[2], -1)
        equal = columns == kth_largest(columns, k)
        places = equal.to(torch.uint8).argmax(0).view(noisy.shape[:2])
    else:
        places = noisy.topk(k).indices[..., -1]
    return Draws(places.t(), noise.gather(2, places.unsqueeze(2)).squeeze(2).mean(0))


def _normal(samples: int, scores: Tensor, generator: torch.Generator | None) -> Tensor:
    """Standard normal numbers for each of the samples ``(B, N, L)``."""
    if not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is not None:
        noise: Tensor = _Normal.apply(scores, samples, generator)
        return noise
    shape = (samples, *scores.shape)
    if generator is None:  # torch.compile supports symbolic shapes only for the overload without a generator
        return torch.randn(shape, device=scores.device, dtype=scores.dtype)
    return torch.randn(shape, generator=generator, device=scores.device, dtype=scores.dtype)


class _Normal(torch.autograd.Function):
    """:func:`_normal` inside ``torch.func``: all directions of a derivative have the same noise.

    ``vmap`` calls a function's own rule only where the scores themselves differ, as for several models.
    """

    @staticmethod
    def forward(scores: Tensor, samples: int, generator: torch.Generator | None) -> Tensor:
        return _normal(samples, scores, generator)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG004
        ctx.mark_non_differentiable(output)

    @staticmethod
    def backward(_ctx: Any, _gradient: Tensor) -> tuple[None, None, None]:
        return None, None, None

    @staticmethod
    def jvp(_ctx: Any, *_along: Tensor | None) -> None:
        return None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int, ...], scores: Tensor, samples: int, generator: torch.Generator | None
    ) -> tuple[Tensor, int | None]:
        models = scores.movedim(in_dims[0], 0)
        if info.randomness == "error":
            raise RuntimeError("noise for several models needs vmap(..., randomness='same' or 'different')")
        if info.randomness == "same":
            return _normal(samples, models[0], generator), None
        return torch.stack([_normal(samples, model, generator) for model in models.unbind(0)]), 0


def _by_exceedances(
    scores: Tensor, k: int, epsilon: float, samples: int, generator: torch.Generator | None
) -> Draws:
    groups = grouped(scores, k)
    usual = (groups.largest < torch.inf) & (groups.centre > -torch.inf)
    if not usual.all():
        return _without_unusual_rows(scores, k, epsilon, samples, generator, usual)
    columns = Columns.of(scores, groups, find_threshold(groups, k, epsilon), k, epsilon, generator)
    at_once = max(1, COLUMNS_AT_ONCE // len(scores))
    blocks = [columns.draw(min(at_once, samples - b)) for b in range(0, samples, at_once)]
    values, classes = (torch.cat(tensors) for tensors in zip(*blocks, strict=True))
    centred = scores.gather(1, classes.t()).sub_(groups.centre.unsqueeze(1))
    return Draws(classes.t(), values.mean(0).mul_(epsilon).sub_(centred.mean(1)))


def _without_unusual_rows(
    scores: Tensor, k: int, epsilon: float, samples: int, generator: torch.Generator | None, usual: Tensor
) -> Draws:
    """As :func:`_by_exceedances`; rows with NaN, +inf or fewer than k classes get the k-th largest score, no noise."""
    classes = scores.topk(k).indices[:, -1:].repeat(1, samples)
    noise = torch.zeros_like(scores[:, 0])
    if usual.any():
        classes[usual], noise[usual] = _by_exceedances(scores[usual], k, epsilon, samples, generator)
    return Draws(classes, noise)


Generators: TypeAlias = torch.Generator | Sequence[torch.Generator] | None


def check_generators(generator: Generators, rows: int) -> None:
    """Check one generator, or several that divide the rows evenly."""
    if isinstance(generator, Sequence) and (not generator or rows % len(generator)):
        raise ValueError(
            f"generator must be one, or several whose number divides the {rows} samples, got {len(generator)}"
        )


def seeds_of(generator: Generators, device: torch.device) -> Tensor:
    """A seed from each generator ``(G,)``, for kernels that make their own noise."""
    sources = generator if isinstance(generator, Sequence) else [generator]
    seeds = [torch.randint(2**63 - 1, (1,), generator=source, device=device) for source in sources]
    return seeds[0] if len(seeds) == 1 else torch.cat(seeds)


def shares(scores: Tensor, generator: Generators) -> list[tuple[Tensor, torch.Generator | None]]:
    """The rows for which each generator draws, and the generator."""
    if generator is None or isinstance(generator, torch.Generator):
        return [(scores, generator)]
    check_generators(generator, len(scores))
    return list(zip(torch.split(scores, len(scores) // len(generator)), generator, strict=True))
