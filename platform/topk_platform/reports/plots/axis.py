"""The horizontal axis of a plot: a number in which a study's regimes differ, or in which the arms of a loss differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from topk_platform.errors import UserError
from topk_platform.specs import CONDITIONS, Arm, Regime, strength

__all__ = ["Axis", "axis_of", "numbers_of"]


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
    if not by and len(numbers := numbers_of([arm.regime for arm in arms])) == 1:
        ((title, known),) = numbers.items()
        return _axis(
            title,
            {arm.name: known[arm.regime.name] for arm in arms},
            {arm.name: arm.loss.label for arm in arms},
            {arm.name: arm.model.label for arm in arms},
            shared=True,
        )
    named = [by] if by else _fixed_names(arms)
    axes = [axis for name in named if (axis := _by_parameter(arms, name))]
    if by and not axes:
        varying = [name for name in _fixed_names(arms) if _by_parameter(arms, name)]
        raise UserError(
            f"--by must be a fixed parameter with several numbers, {varying or 'and the study has none'}, got {by!r}"
        )
    return axes[0] if axes else None


def numbers_of(regimes: Sequence[Regime]) -> dict[str, dict[str, float]]:
    """Return the numbers in which regimes differ: strengths of conditions, and options of their dataset.

    Args:
        regimes: Regimes of a study.

    Returns:
        Each regime's number by its name, for each title of an axis. Empty if the regimes differ in something else, or
        if two of them have the same numbers.

    Example:
        >>> from topk_platform import LabelNoise, PerClass
        >>> made = [Regime(f"{n}-{p}", "letters", (PerClass(n), LabelNoise(p))) for n in (5, 20) for p in (0.0, 0.4)]
        >>> {title: numbers["20-0.4"] for title, numbers in numbers_of(made).items()}
        {'label noise, probability': 0.4, 'training samples per class': 20.0}
    """
    facts = {regime.name: _facts(regime) for regime in regimes}
    values = {
        title: {name: of.get(title) for name, of in facts.items()} for of in facts.values() for title in of
    }
    differing = {title: of for title, of in values.items() if len(set(map(repr, of.values()))) > 1}
    numbers = {
        title: {name: number for name, value in of.items() if (number := _as_number(value)) is not None}
        for title, of in differing.items()
    }
    if any(len(of) < len(facts) for of in numbers.values()):
        return {}
    positions = set(zip(*(of.values() for of in numbers.values()), strict=True))
    return numbers if len(positions) == len(facts) else {}


def _facts(regime: Regime) -> dict[str, object]:
    """Return what a regime is made of, by the title of an axis where it is a number."""
    of_kind = {type(condition): condition for condition in regime.conditions}
    others = [condition for condition in regime.conditions if not condition.axis]
    return {
        **{k.axis: strength(of_kind[k]) if k in of_kind else k.neutral for k in CONDITIONS if k.axis},
        **{name.replace("_", " "): value for name, value in regime.options.items()},
        "dataset": (regime.dataset, others),
    }


def _fixed_names(arms: Sequence[Arm]) -> list[str]:
    return [*dict.fromkeys(name for arm in arms for name in arm.loss.fixed), "K"]


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
