"""The horizontal axis of a plot: a number in which a study's regimes differ, or in which the arms of a loss differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from topk_platform.errors import UserError
from topk_platform.specs import CONDITIONS, Arm, Condition, Regime, strength

__all__ = ["Axis", "Plane", "axis_of", "plane_of"]


@dataclass(frozen=True)
class Axis:
    """The axis of a plot: it has a number for every arm that is drawn.

    Args:
        title: The axis title, with its unit.
        positions: Each arm's number, by the arm's name.
        series: The name of each arm's line, by the arm's name; the arms of one line differ only in the number.
        panels: The name of each arm's panel, by the arm's name.
        log: Whether the numbers differ so much that the axis is logarithmic.
        names: The names at 0, 1, ... if the axis shows names instead of numbers. Fewer than three numbers are not a
            series of measurements, and no line joins them.
        shared: Whether the numbers belong to regimes, so that every line has all of them. Otherwise each line has its
            own numbers.
    """

    title: str
    positions: Mapping[str, float]
    series: Mapping[str, str]
    panels: Mapping[str, str]
    log: bool = False
    names: tuple[str, ...] = ()
    shared: bool = False

    def levels(self, panel: str, series: str) -> list[float]:
        """Return the numbers of a line in order, including those without a result.

        Args:
            panel: The name of the line's panel.
            series: The name of the line.
        """
        arms = [arm for arm in self.positions if self.panels[arm] == panel]
        own = arms if self.shared else [arm for arm in arms if self.series[arm] == series]
        return sorted({self.positions[arm] for arm in own})


@dataclass(frozen=True)
class Plane:
    """Two numbers in which regimes differ.

    Args:
        titles: The titles of both axes with their units, the horizontal one first.
        positions: Both numbers of each regime, by the regime's name.
    """

    titles: tuple[str, str]
    positions: Mapping[str, tuple[float, float]]


_NUMBERED = tuple(kind for kind in CONDITIONS if kind.axis)
_SERIES = 3  # the least number of measured levels that a line may join


def axis_of(arms: Sequence[Arm], by: str = "") -> Axis | None:
    """Return the axis of some arms, or None if they do not differ in a number.

    Args:
        arms: Arms of a study.
        by: ``"K"``, or a parameter that is fixed in the losses, such as ``"tau"``; by default the number in which the
            regimes differ, or else the one parameter that differs among the arms of a loss, or else K.

    Raises:
        UserError: if no loss has several values of ``by``.
    """
    if not by and (result := _by_regime(arms)):
        return result
    named = [by] if by else _fixed_names(arms)
    known = [axis for name in named if (axis := _by_parameter(arms, name))]
    if by and not known:
        varying = [name for name in _fixed_names(arms) if _by_parameter(arms, name)]
        raise UserError(
            f"--by must be a fixed parameter with several numbers, {varying or 'and the study has none'}, got {by!r}"
        )
    return known[0] if known else None


def plane_of(regimes: Sequence[Regime]) -> Plane | None:
    """Return the two numbers in which regimes differ, or None if they differ in another way.

    Args:
        regimes: Regimes of a study.

    Example:
        >>> from topk_platform import LabelNoise, PerClass
        >>> made = [Regime(f"{n}-{p}", "letters", (PerClass(n), LabelNoise(p))) for n in (5, 20) for p in (0.0, 0.4)]
        >>> plane_of(made).positions["20-0.4"]
        (0.4, 20.0)
    """
    named = list({regime.name: regime for regime in regimes}.values())
    numbers = {kind: [_number(regime, kind) for regime in named] for kind in _NUMBERED}
    both = [kind for kind, result in numbers.items() if len(set(result)) > 1]
    rest = {
        repr((r.dataset, dict(r.options), [c for c in r.conditions if type(c) not in both])) for r in named
    }
    if len(both) != 2 or len(rest) > 1:
        return None
    x, y = (numbers[kind] for kind in both)
    positions = {
        r.name: (a, b) for r, a, b in zip(named, x, y, strict=True) if a is not None and b is not None
    }
    alone = len(positions) == len(named) == len(set(positions.values()))
    return Plane((both[0].axis, both[1].axis), positions) if alone else None


def _fixed_names(arms: Sequence[Arm]) -> list[str]:
    return [*dict.fromkeys(name for arm in arms for name in arm.loss.fixed), "K"]


def _by_regime(arms: Sequence[Arm]) -> Axis | None:
    regimes = list({arm.regime.name: arm.regime for arm in arms}.values())
    for kind in _NUMBERED:
        numbers = {r.name: result for r in regimes if (result := _number(r, kind)) is not None}
        alike = {repr((r.dataset, dict(r.options), _others(r, kind))) for r in regimes}
        if len(alike) == 1 and len(numbers) == len(regimes) and len(set(numbers.values())) > 1:
            return _made(kind.axis, arms, {arm.name: numbers[arm.regime.name] for arm in arms})
    return _by_option(arms, regimes)


def _by_option(arms: Sequence[Arm], regimes: Sequence[Regime]) -> Axis | None:
    """Return the axis of regimes that differ in a single option of their dataset, if it is a number."""
    if len({repr((r.dataset, r.conditions, sorted(r.options))) for r in regimes}) > 1:
        return None
    differing = [o for o in regimes[0].options if len({repr(r.options[o]) for r in regimes}) > 1]
    if len(differing) != 1:
        return None
    values = {r.name: _as_number(r.options[differing[0]]) for r in regimes}
    numbers = {name: value for name, value in values.items() if value is not None}
    if len(numbers) < len(regimes):
        return None
    return _made(differing[0].replace("_", " "), arms, {a.name: numbers[a.regime.name] for a in arms})


def _number(regime: Regime, kind: type[Condition]) -> float | None:
    result = [c for c in regime.conditions if type(c) is kind]
    return strength(result[0]) if result else kind.neutral


def _others(regime: Regime, kind: type[Condition]) -> tuple[Condition, ...]:
    return tuple(c for c in regime.conditions if type(c) is not kind)


def _made(title: str, arms: Sequence[Arm], positions: Mapping[str, float]) -> Axis:
    series = {arm.name: arm.loss.label for arm in arms}
    panels = {arm.name: arm.model.label for arm in arms}
    return _axis(title, positions, series, panels, shared=True)


def _axis(
    title: str,
    positions: Mapping[str, float],
    series: Mapping[str, str],
    panels: Mapping[str, str],
    *,
    shared: bool = False,
) -> Axis:
    """Return an axis of numbers; if they are too few for a series, their names are side by side."""
    numbers = sorted(set(positions.values()))
    if len(numbers) >= _SERIES:
        return Axis(title, positions, series, panels, _wide(numbers), shared=shared)
    indexes = {arm: float(numbers.index(number)) for arm, number in positions.items()}
    return Axis(
        title, indexes, series, panels, names=tuple(f"{number:g}" for number in numbers), shared=shared
    )


def _by_parameter(arms: Sequence[Arm], name: str) -> Axis | None:
    values = {arm.name: _as_number(arm.k if name == "K" else arm.loss.fixed.get(name)) for arm in arms}
    positions = {arm_name: value for arm_name, value in values.items() if value is not None}
    shown = [arm for arm in arms if arm.name in positions]
    seen: dict[tuple[str, str, str], set[float]] = {}
    for arm in shown:
        seen.setdefault((arm.regime.name, arm.model.label, arm.loss.name), set()).add(positions[arm.name])
    if not any(len(numbers) > 1 for numbers in seen.values()):
        return None
    series = {arm.name: arm.loss.name.rpartition(":")[2] for arm in shown}
    panels = {arm.name: f"{arm.regime.name}, {arm.model.label}" for arm in shown}
    return _axis(name, positions, series, panels)


def _as_number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _wide(numbers: Sequence[float]) -> bool:
    """Return whether numbers in order differ so much that their axis is logarithmic."""
    return numbers[0] > 0 and numbers[-1] / numbers[0] >= 20
