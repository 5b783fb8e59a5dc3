"""What each minor version of Optuna suggests, recorded in ``recorded_suggestions.json``."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

__all__ = ["recorded_suggestions"]

_FILE = Path(__file__).with_suffix(".json")


def recorded_suggestions(case: str, suggested: list[Any]) -> list[Any]:
    """Return the values recorded for a case and the installed minor version of Optuna.

    A version that was not recorded yet skips the test, with the line to add.

    Args:
        case: Names the values in the file.
        suggested: What the installed version suggests.
    """
    minor = ".".join(version("optuna").split(".")[:2])
    recorded: dict[str, dict[str, list[Any]]] = json.loads(_FILE.read_text())
    if minor not in recorded:
        pytest.skip(f"{_FILE.name} has nothing for Optuna {minor}; add {json.dumps({case: suggested})}")
    return recorded[minor][case]
