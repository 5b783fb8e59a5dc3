"""CPU kernels of the comparators of a relaxed sorting network: loops over the lanes of a stage.

``f = 1/2 + arctan(x) / π`` takes one division. With ``z = |x|``, the smaller of f and 1 - f comes from ``arctan z`` for
small z, from ``arctan 1/z`` for large z, and otherwise from ``arctan (z - 1) / (z + 1)``. So the polynomial only has to
cover arguments up to tan(π / 8), and small probabilities keep their relative accuracy.
"""

from __future__ import annotations

import math

from topk_losses._core.numba_kernels import Doubles, contracting

__all__ = ["CERTAIN", "add", "chances", "densities", "means", "mix", "products"]

CERTAIN = 1e250  # a distance that two present values never have
LOW, HIGH = math.sqrt(2) - 1, math.sqrt(2) + 1
PER_PI = 1 / math.pi

# arctan(u) / u as a polynomial in u² for u up to tan(π / 8), with a relative error of 8e-13.
A0, A1, A2, A3 = 0.9999999999992709, -0.3333333327838204, 0.19999993188694712, -0.14285391253135954
A4, A5, A6, A7 = 0.11103534812983296, -0.0899321638579795, 0.06977001333157166, -0.037701670540938724


@contracting
def chances(a: Doubles, b: Doubles, sign: float, out: Doubles) -> None:
    """Write ``F(sign (a - b))`` with the Cauchy distribution function F."""
    for j in range(len(out)):
        x = sign * (a[j] - b[j])
        z = abs(x)
        low, high = z < LOW, z > HIGH
        above = z if low else (1.0 if high else z - 1.0)
        below = 1.0 if low else (z if high else z + 1.0)
        u = above / below
        v = u * u
        turn = u * (A0 + v * (A1 + v * (A2 + v * (A3 + v * (A4 + v * (A5 + v * (A6 + v * A7))))))) * PER_PI
        small = 0.5 - turn if low else (turn if high else 0.25 - turn)
        small = 0.0 if z > CERTAIN else small
        out[j] = small if x < 0.0 else 1.0 - small


@contracting
def means(stay: Doubles, a: Doubles, b: Doubles, first: Doubles, second: Doubles) -> None:
    for j in range(len(stay)):
        one, two = a[j], b[j]
        first[j] = stay[j] * one + (1.0 - stay[j]) * two
        second[j] = (1.0 - stay[j]) * one + stay[j] * two


@contracting
def mix(stay: Doubles, a: Doubles, b: Doubles) -> None:
    """Replace a and b by their two means."""
    for j in range(len(stay)):
        one, two = a[j], b[j]
        a[j] = stay[j] * one + (1.0 - stay[j]) * two
        b[j] = (1.0 - stay[j]) * one + stay[j] * two


@contracting
def products(a: Doubles, b: Doubles, by_a: Doubles, by_b: Doubles, out: Doubles) -> None:
    for j in range(len(out)):
        out[j] = (a[j] - b[j]) * (by_a[j] - by_b[j])


@contracting
def densities(a: Doubles, b: Doubles, one: Doubles, two: Doubles, out: Doubles) -> None:
    """Write the part of the derivatives with respect to the values that comes from the comparators' probabilities."""
    for j in range(len(out)):
        x = a[j] - b[j]
        out[j] = (one[j] + two[j]) * PER_PI / (1.0 + x * x)


@contracting
def add(factor: float, values: Doubles, out: Doubles) -> None:
    for j in range(len(out)):
        out[j] += factor * values[j]
