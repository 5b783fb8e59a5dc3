"""Studies by name: ours from ``topk_studies``, anybody's by ``package.module:attribute``."""

from __future__ import annotations

import dataclasses
import importlib
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from topk_platform.errors import UserError, blamed
from topk_platform.references import check_arguments, import_reference, is_reference, look_up
from topk_platform.specs import STANDINS, Arm, Study

__all__ = ["find_modules_here", "known_studies", "load_study", "smoke_notice", "smoke_study"]


def find_modules_here() -> None:
    """Let modules of the current folder be imported, as with ``python -m``; those of a study, a record or a worker."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())


def known_studies() -> Mapping[str, Callable[[], Study]]:
    """Return the table of ``topk_studies``."""
    table: Mapping[str, Callable[[], Study]] = importlib.import_module("topk_studies").STUDIES
    return table


def load_study(name: str) -> Study:
    """Return the study of this name; a reference may name a ``Study`` or a function that returns one.

    Raises:
        UserError: if there is no such study, or the reference names something else.
    """
    if "/" in name or os.sep in name:
        raise UserError(f"a study is a name or package.module:attribute, not a path, got {name!r}")
    found = import_reference(name) if is_reference(name) else _known(name)
    study = _made(name, found) if callable(found) else found
    if not isinstance(study, Study):
        raise UserError(
            f"{name!r} must name a Study or a function that returns one, got {type(study).__name__}"
        )
    return study


def _known(name: str) -> Callable[[], Study]:
    file = Path(f"{name.removesuffix('.py')}.py")
    if name not in known_studies() and file.is_file():
        raise UserError(f"a study in {file} is called {file.stem}:ATTRIBUTE, got {name!r}")
    return look_up("study", name, known_studies())


def _made(name: str, function: Callable[..., Any]) -> Any:
    check_arguments("study", name, function, {})
    with blamed(f"study {name}"):
        return function()


def smoke_study(study: Study, here: bool) -> Study:
    """Return the study shrunk to seconds, on the CPU where a GPU is wanted and there is none.

    Args:
        study: The study.
        here: Whether it is to run on this machine.
    """
    small = study.smoke()
    if study.device == "cpu" or not here:
        return small
    import torch  # noqa: PLC0415 - a second that studies for the CPU need not wait for

    if torch.cuda.is_available():
        return small
    return dataclasses.replace(small, device="cpu", arms=tuple(map(_uncompiled, small.arms)))


def _uncompiled(arm: Arm) -> Arm:
    numerics = dataclasses.replace(arm.recipe.numerics, compiled=False)  # minutes, on the CPU
    return dataclasses.replace(arm, recipe=dataclasses.replace(arm.recipe, numerics=numerics))


def smoke_notice(study: Study, small: Study) -> str:
    """Return the line that says what a smoke run does without, or nothing if it does without nothing."""
    names = dict.fromkeys(arm.regime.dataset for arm in study.arms if arm.regime.dataset in STANDINS)
    parts = [f"small stand-ins of {', '.join(names)} in place of the data"] if names else []
    parts += ["the CPU in place of a GPU"] if small.device != study.device else []
    return f"Smoke run: {', and '.join(parts)}." if parts else ""
