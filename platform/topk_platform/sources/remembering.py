"""A cache of analysed modules on disk, by the content of their files; analysing a hundred files takes seconds."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from topk_platform.sources.finding import Source
from topk_platform.sources.module import Module, analysed

__all__ = ["keep", "read_module"]

_MOST = 2000  # modules that are kept


def read_module(source: Source) -> Module:
    """Return the analysis of a module. Every call reads the module's file."""
    content = source.path.read_bytes()
    key = hashlib.sha256(f"{source.name}\0{source.is_package}\0".encode() + content).hexdigest()
    return _module(source, content, key)


@cache
def _module(source: Source, content: bytes, key: str) -> Module:
    known = _known()
    if key not in known:
        known[key] = analysed(source, content).to_data()
        _NEW.add(key)
    return Module.from_data(known[key])


_NEW: set[str] = set()


def keep() -> None:
    """Write the modules that this process has analysed to disk, for later processes; errors of the disk are ignored."""
    if not _NEW:
        return
    known = _read()  # other processes may have written meanwhile
    newest = {**known, **{key: _known()[key] for key in _NEW}}
    _NEW.clear()
    text = json.dumps(dict(list(newest.items())[-_MOST:]), separators=(",", ":"))
    with suppress(OSError, RuntimeError):  # no home, no room, no rights
        _file().parent.mkdir(parents=True, exist_ok=True)
        half = _file().with_suffix(f".{os.getpid()}")
        half.write_text(text)
        half.replace(_file())


@cache
def _known() -> dict[str, Any]:
    return _read()


def _read() -> dict[str, Any]:
    with suppress(OSError, RuntimeError, ValueError):  # the cache is missing or damaged
        modules = json.loads(_file().read_bytes())
        return modules if isinstance(modules, dict) else {}
    return {}


def _file() -> Path:
    """Return the cache's file; each version of Python and of this analysis has its own."""
    own = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        own.update(path.read_bytes())
    name = f"sources-{sys.version_info[0]}.{sys.version_info[1]}-{own.hexdigest()[:12]}.json"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "topk_platform" / name
