"""The expected k-th largest of independent Gaussians by compiled kernels on the CPU."""

from __future__ import annotations

import functools
import math
from statistics import NormalDist
from typing import NamedTuple

import torch
from torch import Tensor

from topk_losses._kernels.compiled import in_parts

__all__ = ["Expectations", "expectations", "slope"]

LARGEST_RANK = 64
CROWD_RANK = 24
COARSEST = 1 / 3
LEVELS = 6
TERMS = 6
BLOCK = 8
AT_LEAST = 32  # rows in a thread


class Rule(NamedTuple):
    tail: float
    noise: float
    target: float
    cap: float
    terms: int


SINGLE = Rule(1e-8, 6.0, 3e-7, 1e-4, 8)
DOUBLE = Rule(1e-12, 8.2, 1e-10, 1e-6, 12)


class Expectations(NamedTuple):
    shift: Tensor
    classes: Tensor
    shares: Tensor
    offsets: Tensor
    counts: Tensor


def expectations(scores: Tensor, k: int, epsilon: float, with_slope: bool) -> Expectations | None:
    from topk_losses._kernels import expected_numba

    rule = SINGLE if scores.dtype == torch.float32 else DOUBLE
    rows, classes = scores.shape
    s = scores.detach().contiguous().numpy()
    depth = math.sqrt(2) * -NormalDist().inv_cdf(rule.tail / (k * classes))
    centre = torch.empty(rows, dtype=torch.float64)
    counts = torch.empty(rows, dtype=torch.int64)
    groups = 16 * math.ceil(4 * k / 16) if k > 16 else 64
    if classes < 2 * groups:
        groups = classes
    c, n = centre.numpy(), counts.numpy()
    in_parts(lambda a, b: expected_numba.levels(s, k, groups, epsilon * depth, c, n, a, b), rows, AT_LEAST)
    ends = counts.cumsum(0)
    if counts.min() < 0:
        return None
    offsets = ends - counts
    total = int(ends[-1])
    names = torch.empty(total, dtype=torch.int32)
    shares = torch.empty(total if with_slope else 0, dtype=scores.dtype)
    shift = torch.empty(rows, dtype=torch.float64)
    most = 1 / (1 + 10 ** -min(6.0, 100 / max(1, k - 1)))
    crowded = max(64, 8 * k) if k <= CROWD_RANK else 1 << 60
    rules = expected_numba.Rules(depth, rule.noise, rule.tail, rule.target, rule.cap, most, crowded, 0.5)
    lattices, inverse = _lattices(), _inverse(rule.terms)
    o, out, sh, nm = offsets.numpy(), shares.numpy(), shift.numpy(), names.numpy()

    def kernel(a: int, b: int) -> None:
        expected_numba.expectations(
            s, k, float(epsilon), c, n, o, lattices, inverse, rules, with_slope, sh, nm, out, a, b,
        )

    in_parts(kernel, rows, AT_LEAST)
    return Expectations(centre + epsilon * shift, names, shares, offsets, counts)


def slope(e: Expectations, gradient: Tensor, like: Tensor) -> Tensor:
    from topk_losses._kernels import expected_numba

    out = torch.zeros_like(like, memory_format=torch.contiguous_format)
    a = [t.numpy() for t in (e.classes, e.shares, e.offsets, e.counts, gradient.contiguous(), out)]
    in_parts(lambda f, l: expected_numba.scatter(*a, f, l), len(like), AT_LEAST)
    return out


@functools.cache
def _inverse(terms: int):
    nodes = torch.cos(math.pi * (torch.arange(terms, dtype=torch.float64) + 0.5) / terms)
    return torch.linalg.inv(torch.linalg.vander(nodes)).contiguous().numpy()


@functools.cache
def _lattices():
    from topk_losses._kernels.expected_numba import BLOCK, LOG_TERMS, PHASES, Tables

    result = []
    for level in range(LEVELS):
        step = COARSEST / 2**level
        width = step / PHASES
        half = math.ceil(9.5 / step) + BLOCK
        whole = half - torch.arange(2 * half + 1, dtype=torch.float64)
        rest = torch.cos(math.pi * (torch.arange(LOG_TERMS, dtype=torch.float64) + 0.5) / LOG_TERMS) / 2
        u = width * (torch.arange(PHASES).view(-1, 1, 1) + PHASES * whole)  # phase, term, node
        values = torch.cat([torch.special.ndtr(u), (-u * u / 2).exp() / math.sqrt(2 * math.pi)], 1)
        logs = torch.special.log_ndtr(-u - width * rest.view(-1, 1))
        terms = torch.linalg.inv(torch.linalg.vander(rest))
        result.append(Tables(values.contiguous().numpy(), (terms @ logs).contiguous().numpy(), step, 1 / width))
    return tuple(result)
