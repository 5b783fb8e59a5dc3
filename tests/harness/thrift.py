"""What spares the tests' processes work that no test is about: passes of the collector, and a search for examples."""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

YOUNG = 10_000  # objects that the collector lets come together, by default 700


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Look for examples in docstrings only in files that have some, about one in five."""
    collectors = yield
    if not collectors or b">>>" in file_path.read_bytes():
        return collectors
    # What looks for examples is a subclass.
    return [collector for collector in collectors if type(collector) is pytest.Module]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Spare it the collector, which passes again and again over what imports and collection keep anyhow."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Spare the collector what imports and collection have made: a full pass over it takes a second."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])
    atexit.register(gc.unfreeze)  # compiled libraries report what is still there at the end as leaks
    # A module that a test writes twice within a second would be taken from what was compiled of the first one.
    sys.dont_write_bytecode = True
