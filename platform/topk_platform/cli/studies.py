"""Studies by name: ours from ``topk_studies``, anybody's by ``package.module:attribute``."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping

from topk_platform.errors import UserError
from topk_platform.references import import_reference, is_reference, look_up
from topk_platform.specs import Study

__all__ = ["known_studies", "load_study"]


def known_studies() -> Mapping[str, Callable[[], Study]]:
    """Return the table of ``topk_studies``."""
    table: Mapping[str, Callable[[], Study]] = importlib.import_module("topk_studies").STUDIES
    return table


def load_study(name: str) -> Study:
    """Return the study of this name; a reference may name a ``Study`` or a function that returns one.

    Modules of the current folder are found, as with ``python -m``.

    Raises:
        UserError: if there is no such study, or the reference names something else.
    """
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    if "/" in name or os.sep in name:
        raise UserError(f"a study is a name or package.module:attribute, not a path, got {name!r}")
    found = import_reference(name) if is_reference(name) else look_up("study", name, known_studies())
    study = found if isinstance(found, Study) else found() if callable(found) else found
    if not isinstance(study, Study):
        raise UserError(
            f"{name!r} must name a Study or a function that returns one, got {type(study).__name__}"
        )
    return study
