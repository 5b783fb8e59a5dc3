"""How many samples each regime trains, validates and tests with."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Generator

from topk_platform.data import Dataset, apply_conditions, set_aside, shot_words
from topk_platform.data.noise import Tracked, wrong_share
from topk_platform.running.preflight.training_splits import streams, trained_on
from topk_platform.specs import Regime, Study

__all__ = ["Samples", "samples_of"]


@dataclass(frozen=True)
class Samples:
    """A regime's numbers of samples, after its conditions.

    Args:
        regime: Its name.
        train: Training samples.
        validation: Validation samples, which choose configurations and epochs.
        test: Test samples.
        classes: The number of classes.
        fewest: Training samples of the rarest class.
        most: Training samples of the most frequent class.
        calibration: Validation samples that are set aside for the thresholds of sets.
        groups: Of how many groups the test samples are, such as ``"160 typefaces"``; empty if that is not known.
        shots: How many classes are many-, medium- and few-shot, in words.
        wrong: The share of the training samples whose label a condition changed, as counted in the data.
    """

    regime: str
    train: int
    validation: int
    test: int
    classes: int
    fewest: int
    most: int
    calibration: int = 0
    groups: str = ""
    shots: str = ""
    wrong: float = 0.0

    def __str__(self) -> str:
        groups = f" of {self.groups}" if self.groups else ""
        aside = f"calibrated with {self.calibration}, " if self.calibration else ""
        each = f"{self.fewest}" if self.fewest == self.most else f"{self.fewest} to {self.most}"
        return (
            f"trained with {self.train}, validated with {self.validation}, {aside}tested with {self.test} "
            f"samples{groups}; {self.classes} classes of {each} training samples"
            f"{', ' if self.shots else ''}{self.shots}"
            f"{f'; {self.wrong:.1%} of the training labels are wrong' if self.wrong else ''}"
        )


def samples_of(study: Study) -> tuple[Samples, ...]:
    """Return the numbers of samples of each regime of a study, in its order.

    Where data are drawn, or label noise moves samples between classes, they are those of the search.

    Args:
        study: The study, whose data are read unless this process has read them.

    Example:
        >>> from topk_studies import letters_quick
        >>> found = samples_of(letters_quick())[0]
        >>> found.train, found.validation, found.test, found.groups
        (1240, 3100, 9920, '160 typefaces')
    """
    regimes = {arm.regime.name: arm.regime for arm in study.arms}
    return tuple(_samples(study, regime) for regime in regimes.values())


def _samples(study: Study, regime: Regime) -> Samples:
    data, calibration = trained_on(study, regime, conditions=False), study.calibration
    data = data.with_train(Tracked.of(data.train))
    data = apply_conditions(data, regime.conditions, streams(study))
    data = set_aside(data, calibration, Generator().manual_seed(0)) if calibration else data
    return Samples(
        regime.name,
        len(data.train),
        len(data.validation),
        len(data.test),
        data.classes,
        fewest=int(data.class_counts.min()),
        most=int(data.class_counts.max()),
        calibration=0 if data.calibration is None else len(data.calibration),
        groups=_groups(data),
        shots=shot_words(data.class_counts),
        wrong=wrong_share(data.train),
    )


def _groups(data: Dataset) -> str:
    numbers = data.test.groups
    return "" if numbers is None else f"{len(set(numbers.tolist()))} {data.groups}"
