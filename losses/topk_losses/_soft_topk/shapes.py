"""The shapes F of a soft top-K: membership as a function of the distance from the threshold, in units of τ.

Three are symmetric distribution functions, positive everywhere. For these, the threshold equation compares the
logarithms of two sums: what the memberships of the K best lack of 1, and the memberships of the others. This is
accurate however small both are. Two shapes are bounded, 0 and 1 outside an interval; for them the equation is the
difference of the sums.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

__all__ = ["CODES", "SHAPES", "Shape"]

LOWEST = -1e100  # distance of a masked class: densities and their derivatives are 0 here, and NaN at -inf
CUBED = 3  # 1 / (p - 1) for the p = 4/3 of Sander et al.


class Shape(ABC):
    """F of float64 distances x, and what the threshold and the gradient need.

    Attributes:
        positive: Whether F is above 0 everywhere, so that ``-log F`` is finite.
        by_middle: Whether the threshold is the midpoint of the K-th and the (K+1)-th largest scores.
    """

    positive: bool = True
    by_middle: bool = False

    @abstractmethod
    def chance(self, x: Tensor) -> Tensor:
        """``F(x)``."""

    @abstractmethod
    def density(self, x: Tensor) -> Tensor:
        """``F'(x)``."""

    @abstractmethod
    def miss(self, x: Tensor) -> Tensor:
        """``1 - F(x)``, without cancellation for shapes that are positive everywhere."""

    @abstractmethod
    def shares(self, x: Tensor) -> Tensor:
        """``F'(x) / Σ F'(x)`` over the last dimension; 0 where the sum is 0."""

    @abstractmethod
    def equation(self, above: Tensor, rest: Tensor) -> tuple[Tensor, Tensor]:
        """An increasing function of the threshold that is 0 at the right one, and its derivative, ``(M, 1)`` each.

        Args:
            above: Distances of the K best classes from the threshold ``(M, K)``.
            rest: Distances of the others ``(M, n)``.
        """

    @abstractmethod
    def bracket(self, k: int, classes: int) -> tuple[float, float]:
        """How far the threshold can lie below the (K+1)-th score, and above the K-th score."""

    def log_chance(self, x: Tensor) -> Tensor:
        """``log F(x)``."""
        raise NotImplementedError

    def hazard(self, x: Tensor) -> Tensor:
        """``F'(x) / F(x)``."""
        raise NotImplementedError


class _Positive(Shape):
    """A symmetric distribution function: ``1 - F(x) = F(-x)``."""

    def chance(self, x: Tensor) -> Tensor:
        return self.log_chance(x).exp()

    def density(self, x: Tensor) -> Tensor:
        return self.log_density(x).exp()

    def miss(self, x: Tensor) -> Tensor:
        return self.chance(-x)

    def shares(self, x: Tensor) -> Tensor:
        return self.log_density(x).softmax(-1)

    @abstractmethod
    def log_density(self, x: Tensor) -> Tensor:
        """``log F'(x)``."""

    @abstractmethod
    def reach(self, n: int) -> float:
        """An x with ``F(-x) <= 1 / n``."""

    def equation(self, above: Tensor, rest: Tensor) -> tuple[Tensor, Tensor]:
        missing, held = self.log_chance(-above), self.log_chance(rest)
        value = missing.logsumexp(1, keepdim=True) - held.logsumexp(1, keepdim=True)
        slope = (missing.softmax(1) * self.hazard(-above)).sum(1, keepdim=True)
        return value, slope + (held.softmax(1) * self.hazard(rest)).sum(1, keepdim=True)

    def bracket(self, k: int, classes: int) -> tuple[float, float]:
        # Lower, the K + 1 best alone would sum to more than K; higher, those after the K - 1 best to less than 1.
        return self.reach(k + 1), self.reach(classes - k + 1)


class _Logistic(_Positive):
    def log_chance(self, x: Tensor) -> Tensor:
        return torch.nn.functional.logsigmoid(x)

    def chance(self, x: Tensor) -> Tensor:
        # Torch's derivative of a sigmoid near 1 is ``p (1 - p)`` of a rounded p; of its small counterpart it is exact.
        small = (-x.abs()).sigmoid()
        return torch.where(x > 0, 1 - small, small)

    def hazard(self, x: Tensor) -> Tensor:
        return self.chance(-x)

    def log_density(self, x: Tensor) -> Tensor:
        return self.log_chance(x) + self.log_chance(-x)

    def reach(self, n: int) -> float:
        return math.log(n)


class _Middle(_Logistic):
    by_middle = True


class _Laplace(_Positive):
    def log_chance(self, x: Tensor) -> Tensor:
        return torch.where(x > 0, torch.log1p(-self._tail(x)), x - math.log(2))

    def chance(self, x: Tensor) -> Tensor:
        return torch.where(x > 0, 1 - self._tail(x), self._tail(x))

    def hazard(self, x: Tensor) -> Tensor:
        tail = self._tail(x)
        return torch.where(x > 0, tail / (1 - tail), 1)

    def log_density(self, x: Tensor) -> Tensor:
        return -x.abs() - math.log(2)

    def reach(self, n: int) -> float:
        return math.log(n)

    def _tail(self, x: Tensor) -> Tensor:
        return torch.exp(-x.abs()) / 2


class _Gaussian(_Positive):
    def log_chance(self, x: Tensor) -> Tensor:
        high, low = x.masked_fill(x <= 0, 0), x.masked_fill(x > 0, 0)
        falling = torch.log(torch.special.erfcx(-low / math.sqrt(2)) / 2) - low * low / 2
        return torch.where(x > 0, torch.log1p(-torch.erfc(high / math.sqrt(2)) / 2), falling)

    def chance(self, x: Tensor) -> Tensor:
        return torch.erfc(-x / math.sqrt(2)) / 2

    def hazard(self, x: Tensor) -> Tensor:
        high, low = x.masked_fill(x <= 0, 0), x.masked_fill(x > 0, 0)
        rising = self.log_density(high).exp() / self.chance(high)
        return torch.where(x > 0, rising, math.sqrt(2 / math.pi) / torch.special.erfcx(-low / math.sqrt(2)))

    def log_density(self, x: Tensor) -> Tensor:
        return -x * x / 2 - math.log(2 * math.pi) / 2

    def reach(self, n: int) -> float:
        return math.sqrt(2 * math.log(n))


class _Bounded(Shape):
    """``clip(x, 0, 1)^n``."""

    positive = False

    def __init__(self, power: int) -> None:
        self.power = power

    def chance(self, x: Tensor) -> Tensor:
        return x.clamp(0, 1) ** self.power

    def density(self, x: Tensor) -> Tensor:
        inside = ((x > 0) & (x < 1)).to(x.dtype)
        return inside * self.power * x.clamp(0, 1) ** (self.power - 1)

    def miss(self, x: Tensor) -> Tensor:
        return 1 - self.chance(x)

    def shares(self, x: Tensor) -> Tensor:
        density = self.density(x)
        total = density.sum(-1, keepdim=True)
        return density / total.masked_fill(total == 0, 1)

    def equation(self, above: Tensor, rest: Tensor) -> tuple[Tensor, Tensor]:
        missing = self.miss(above).sum(1, keepdim=True)
        slope = self.density(above).sum(1, keepdim=True) + self.density(rest).sum(1, keepdim=True)
        return missing - self.chance(rest).sum(1, keepdim=True), slope

    def bracket(self, k: int, classes: int) -> tuple[float, float]:  # noqa: ARG002
        return 1.0, 0.0


SHAPES: dict[str, Shape] = {
    "logistic": _Logistic(),
    "laplace": _Laplace(),
    "gaussian": _Gaussian(),
    "clip": _Bounded(1),
    "power": _Bounded(CUBED),
    "midpoint": _Middle(),
}
"""The shapes by name."""

CODES = {name: code for code, name in enumerate(SHAPES)}
"""The numbers of the shapes in kernels."""
