"""The calibration that an exported network carries: its temperature, and the scores that decide its sets."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topk_platform.errors import UserError, unknown_name
from topk_platform.serving.package import CALIBRATION
from topk_platform.specs.checks import check
from topk_platform.specs.codec import decode, encode
from topk_platform.specs.fields import Part, Positive, Whole, check_fields
from topk_platform.trust import made_by, parse_json

__all__ = ["METHODS", "SetCalibration", "check_coverage", "needed_calibration", "rank_of"]

METHODS = ("threshold", "prevalence")
"""The conformity scores: see :func:`~topk_platform.serving.conformal.nonconformity`."""

_FORMAT = 3


def check_coverage(coverage: float) -> None:
    """Raise ``UserError`` unless a coverage is a fraction between 0 and 1.

    Example:
        >>> check_coverage(95)
        Traceback (most recent call last):
        topk_platform.errors.UserError: coverage must be in (0, 1), such as 0.95, got 95
    """
    is_number = isinstance(coverage, int | float) and not isinstance(coverage, bool)
    check(is_number and 0 < coverage < 1, f"coverage must be in (0, 1), such as 0.95, got {coverage!r}")


def rank_of(coverage: float, samples: int) -> int:
    """Return the threshold's position among the sorted calibration scores: ``ceil((n + 1) coverage)``, from 1.

    Args:
        coverage: In ``(0, 1)``.
        samples: The number of scores n.

    Example:
        >>> rank_of(0.95, 99), rank_of(0.9, 9)
        (95, 9)
    """
    return max(1, math.ceil((samples + 1) * coverage - 1e-9))  # 100 * 0.95 may be slightly above 95


@dataclass(frozen=True)
class SetCalibration:
    """The calibration of a network, which turns its scores into sets with a guaranteed coverage.

    Args:
        key: The key of the network's trial.
        temperature: The temperature, by which the scores are divided.
        tuned: The number of samples that decided the temperature.
        prevalences: The share of each class in the training set, ``(L,)``; a class without samples counts as having
            one.
        nonconformity: For each of :data:`METHODS`, the nonconformity of the true class in n further samples, ascending.

    Raises:
        UserError: if a field is out of range.
    """

    key: str
    temperature: Positive
    tuned: Whole
    prevalences: tuple[Part, ...]
    nonconformity: Mapping[str, tuple[float, ...]]

    def __post_init__(self) -> None:
        check_fields(self)
        check(
            set(self.nonconformity) == set(METHODS),
            f"nonconformity must have the scores of {', '.join(METHODS)}, got {sorted(self.nonconformity)}",
        )
        for method, values in self.nonconformity.items():
            check(
                len(values) == self.samples > 0,
                f"nonconformity must have equally many scores, at least 1, for each method, got {len(values)} for "
                f"{method!r} and {self.samples} for {METHODS[0]!r}",
            )
            check(list(values) == sorted(values), f"the scores of {method!r} must be in ascending order")

    @property
    def samples(self) -> int:
        """The number n of samples that decide the thresholds."""
        return len(self.nonconformity[METHODS[0]])

    @property
    def most(self) -> float:
        """The largest coverage that n samples can guarantee, ``n / (n + 1)``, rounded down to four decimals."""
        return math.floor(1e4 * self.samples / (self.samples + 1)) / 1e4

    def threshold(self, coverage: float, method: str = METHODS[0]) -> float:
        """Return the largest nonconformity that a class in a set may have.

        Args:
            coverage: The requested coverage, in ``(0, 1)``.
            method: One of :data:`METHODS`.

        Raises:
            UserError: if the coverage is not in (0, 1) or needs more samples, or the method is unknown.
        """
        check_coverage(coverage)
        if method not in METHODS:
            raise unknown_name("method", method, METHODS)
        rank = rank_of(coverage, self.samples)
        if rank > self.samples:
            needed = math.ceil(coverage / (1 - coverage) - 1e-9)
            raise UserError(
                f"coverage {coverage:.6g} needs at least {needed} calibration samples, and this network has "
                f"{self.samples}: the largest coverage they can guarantee is {self.most:.4g}"
            )
        return self.nonconformity[method][rank - 1]

    def to_json(self) -> str:
        """Return the calibration as JSON."""
        return json.dumps({"format": _FORMAT, **encode(self)}) + "\n"

    @classmethod
    def from_json(cls, text: str) -> SetCalibration:
        """Return the calibration that ``to_json`` wrote.

        Raises:
            ValueError, LookupError, TypeError: if the text is not such a calibration.
        """
        data: dict[str, Any] = parse_json(text)
        if (written := data.pop("format")) != _FORMAT:
            raise ValueError(f"format must be {_FORMAT}, got {written!r}")
        calibration: SetCalibration = decode(data, (cls,))
        return calibration

    @classmethod
    def read(cls, folder: Path, key: str, classes: int) -> SetCalibration | None:
        """Return the calibration in the folder of an export; None if it has none.

        Args:
            folder: The folder.
            key: The key of the network's trial.
            classes: The network's number of classes.

        Raises:
            UserError: if the file is damaged or belongs to another network.
        """
        path = folder / CALIBRATION
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error}") from error
        with made_by(path, "the calibration of an exported network"):
            calibration = cls.from_json(content.decode())
            if (calibration.key, len(calibration.prevalences)) != (key, classes):
                raise ValueError(
                    f"it belongs to trial {calibration.key} of {len(calibration.prevalences)} classes, "
                    f"the network to trial {key} of {classes}"
                )
        return calibration


def needed_calibration(calibration: SetCalibration | None) -> SetCalibration:
    """Return the calibration of a network; raise ``UserError`` with the remedies if it has none."""
    if calibration is None:
        raise UserError(
            "sets with a coverage need a calibrated network, and this export has no calibration.json: calibrate it on "
            "labelled inputs of yours, `topk predict FOLDER PHOTOS --calibrate` with PHOTOS/CLASS/INPUT"
        )
    return calibration
