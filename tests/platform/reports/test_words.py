"""Numbers as texts."""

from __future__ import annotations

import pytest

from topk_platform.reports.words import rounded


@pytest.mark.parametrize(
    ("value", "text"),
    [(999.4, "999"), (999.49, "999"), (999.5, "1000"), (999.7, "1000"), (-999.7, "-1000"), (1000.4, "1000")],
)
def test_a_number_near_a_thousand_is_not_written_as_a_power_of_ten(value: float, text: str) -> None:
    assert rounded(value) == text
