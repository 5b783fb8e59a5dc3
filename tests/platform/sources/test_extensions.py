"""What a recipe adds counts in the identity of the arms that name it, and of no others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from topk_platform import (
    EMA,
    Arm,
    Choice,
    Loss,
    Model,
    Recipe,
    Regime,
)
from topk_platform.code_version import Code, Own
from topk_platform.sources import Source, find_source

PLAIN = Recipe(5)
RECIPES = {
    "plain": PLAIN,
    "adam": replace(PLAIN, optimizer="adam"),
    "adamw": replace(PLAIN, optimizer="adamw"),
    "heavy ball": replace(PLAIN, optimizer="heavy_ball"),
    "ema": replace(PLAIN, average=EMA()),
}
SEARCHED = Loss("cross_entropy", {"optimizer": Choice(("sgd", "adamw"))}, {"optimizer": "sgd"})
ARMS = {
    name: Arm(Regime("r", "digits"), Model("mlp"), Loss("cross_entropy"), 3, r) for name, r in RECIPES.items()
}
ARMS["either optimizer"] = replace(ARMS["plain"], loss=SEARCHED)

EDITS = [
    (
        "training.steps.optim",
        "decoupled_weight_decay=True",
        "decoupled_weight_decay=False",
        {"adamw", "either optimizer"},
    ),
    (
        "training.steps.optim",
        "_SGD(parameters, nesterov=False",
        "_SGD(parameters, nesterov=True",
        {"heavy ball"},
    ),
    ("training.steps.optim", '{"adamw": _adamw,', '{"another": _adamw, "adamw": _adamw,', set()),
    ("training.averaging", "_SLOWER = 9", "_SLOWER = 10", {"ema"}),
]


def edited(module: str, old: str, new: str, folder: Path) -> Callable[[str], Source | None]:
    name = f"topk_platform.{module}"
    original = find_source(name)
    assert original is not None
    text = original.path.read_text()
    assert old in text, old
    location = folder / original.path.name
    location.write_text(text.replace(old, new, 1))
    return lambda asked: Source(asked, location) if asked == name else find_source(asked)


@pytest.mark.parametrize(("module", "old", "new", "anew"), EDITS, ids=[edit[1] for edit in EDITS])
def test_an_edit_of_an_addition_starts_its_own_arms_anew(
    module: str, old: str, new: str, anew: set[str], tmp_path: Path
) -> None:
    before, after = Code(Own()), Code(Own(edited(module, old, new, tmp_path)))
    assert {name for name, arm in ARMS.items() if before.version(arm) != after.version(arm)} == anew


def test_an_addition_counts_in_no_arm_without_it() -> None:
    """All arms have the loop in common; what is added stands beside it."""
    code = Code(Own())
    versions = {name: code.version(arm) for name, arm in ARMS.items()}
    assert versions["plain"] == versions["adam"] and versions["either optimizer"] == versions["adamw"]
    assert len(set(versions.values())) == len(ARMS) - 2
    definitions = {name for part in code.parts([]) for name in part.definitions}
    assert not {n for n in definitions if "averaging" in n or "extensions" in n}


def test_a_new_field_changes_no_arms_text() -> None:
    """An arm that names none has the JSON, and so the hash, of the time before there were any."""
    from topk_platform.specs import canonical_json

    text = canonical_json(ARMS["plain"])
    assert '"average"' not in text
