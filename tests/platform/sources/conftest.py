"""A small lab whose loss is edited."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from topk_platform import Arm, Loss, Model, Recipe, Regime
from topk_platform.code_version import code_version


@pytest.fixture
def starts_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., bool]:
    """Return a function that tells whether replacing a text in the files of ``edited_lab:loss`` starts its arm anew."""
    monkeypatch.syspath_prepend(str(tmp_path))
    arm = Arm(Regime("r", "digits"), Model("mlp"), Loss("edited_lab.main:loss"), 3, Recipe(1))

    def written(sources: Mapping[str, str]) -> str:
        for name, text in {"__init__": "", **sources}.items():
            path = tmp_path / "edited_lab" / f"{name}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        return code_version(arm)

    def edited(sources: Mapping[str, str], old: str, new: str) -> bool:
        assert any(old in text for text in sources.values())
        return written(sources) != written({name: text.replace(old, new) for name, text in sources.items()})

    return edited
