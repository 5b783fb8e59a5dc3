"""Scripts that belong to no package, as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

__all__ = ["loaded"]


def loaded(path: Path, name: str) -> Any:
    """Return a script as a module of that name, under which dataclasses and pickles look for its classes.

    As when Python runs it, it can import what lies beside it.
    """
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    with patch.object(sys, "path", [str(path.parent), *sys.path]):
        spec.loader.exec_module(module)
    return module
