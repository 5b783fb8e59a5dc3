"""The description of a regime's data, which a file of findings holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from topk_platform import LabelNoise, LongTail, PerClass, Regime, UserError
from topk_platform.evidence.store_findings import situation_of
from topk_platform.results.findings_schema import Situation


def test_a_regime_is_what_its_conditions_leave_of_its_data() -> None:
    result = situation_of(Regime("few", "digits", (PerClass(20), LabelNoise(0.5), LabelNoise(0.2))), 3)
    assert result == Situation(10, 200, 1.0, 0.6, 3)
    tail = situation_of(Regime("tail", "digits", (LongTail(20),)), 3)
    assert 19 <= tail.imbalance <= 21 and tail.images < 700


@pytest.mark.parametrize(
    ("changes", "name"),
    [({"classes": 1}, "classes"), ({"noise": 1.5}, "noise"), ({"imbalance": 0.5}, "imbalance"),
     ({"k": 100}, "k"), ({"images": 50}, "images")],
)  # fmt: skip
def test_what_cannot_be_is_refused(changes: Mapping[str, Any], name: str) -> None:
    with pytest.raises(UserError, match=rf"\b{name} must be "):
        Situation(**{"classes": 100, "images": 5000, "imbalance": 1.0, "noise": 0.0, "k": 5, **changes})
