"""Errors of ``topk recommend`` name its options."""

from __future__ import annotations

import pytest

from topk_platform import UserError
from topk_platform.cli.commands.recommend import recommend


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": 1}, "--classes must be at least 2, got 1"),
        ({"images": 0}, "--images must be at least 1, got 0"),
        ({"images": 99}, "--images must be at least the number of classes, got 99 of 100 classes"),
        ({"imbalance": 0.5}, "--imbalance must be at least 1, the largest class over the smallest, got 0.5"),
        ({"noise": 2.0}, r"--noise must be in \[0, 1\], got 2.0"),
        ({"noise": float("nan")}, "--noise must be a finite number, got nan"),
        ({"k": 0}, "-k must be at least 1, got 0"),
        ({"k": 100}, "-k must be below the number of classes, got 100 of 100 classes"),
    ],
)
def test_a_number_out_of_range_is_named_as_the_option_that_it_was_given_by(
    changes: dict[str, float], message: str
) -> None:
    with pytest.raises(UserError, match=f"^{message}$"):
        recommend(**{"classes": 100, "images": 5000, **changes})  # type: ignore[arg-type]
