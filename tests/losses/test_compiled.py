"""The way to machine code: what is kept on disk, threads, and life without Numba."""

import importlib.util
import os
import sys

import pytest
import torch

from topk_losses._core import numba as compiled
from topk_losses.functional import smooth_topk_svm

MODULE = """
from typing import NamedTuple
import numpy as np
from topk_losses._core.numba import compiled
class {name}(NamedTuple):
    values: np.ndarray
@compiled
def total(pair):
    return pair.values.sum() + {constant}
def result():
    return total({name}(np.ones(3)))
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A function of a source: the module of that source, in the same file every time."""
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)

    def load(source, age):
        path = tmp_path / "kept_kernel.py"
        path.write_text(source)
        os.utime(path, (age, age))
        spec = importlib.util.spec_from_file_location("kept_kernel", path)
        loaded = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "kept_kernel", loaded)
        spec.loader.exec_module(loaded)
        return loaded

    return load


def test_machine_code_is_kept_and_made_anew_when_its_source_changes(module, tmp_path):
    first = module(MODULE.format(name="Pair", constant=1), 1_000_000)
    assert first.result() == 4
    assert list(tmp_path.rglob("*.nbc"))
    again = module(MODULE.format(name="Pair", constant=1), 1_000_000)
    assert again.result() == 4
    assert sum(again.total.stats.cache_hits.values()) == 1
    assert module(MODULE.format(name="Pair", constant=2), 2_000_000).result() == 5


def test_a_class_that_is_gone_does_no_harm(module):
    assert module(MODULE.format(name="Pair", constant=1), 1_000_000).result() == 4
    assert module(MODULE.format(name="Couple", constant=2), 2_000_000).result() == 5


def test_without_a_place_to_keep_it_machine_code_is_made_all_the_same(module, monkeypatch):
    from numba.core import caching

    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    loaded = module(MODULE.format(name="Pair", constant=1), 1_000_000)
    assert loaded.result() == 4
    assert not hasattr(loaded.total._cache, "_cache_file")


@pytest.fixture
def numba_fails(monkeypatch):
    """A Numba that is installed and cannot be imported."""
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    compiled._numba_is_there.cache_clear()
    yield
    compiled._numba_is_there.cache_clear()


def test_a_numba_that_cannot_be_imported_leaves_the_losses_to_torch(numba_fails):
    scores = torch.randn(4, 100, generator=torch.Generator().manual_seed(0))
    with pytest.warns(UserWarning, match="losses run in plain torch"):
        assert smooth_topk_svm(scores, torch.arange(4), 5).isfinite()


@pytest.mark.parametrize(("rows", "at_least", "parts"), [(10, 1, 3), (10, 4, 2), (10, 11, 1), (0, 1, 1)])
def test_rows_are_shared_among_as_many_threads_as_torch_has(rows, at_least, parts, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    done = []
    compiled.in_parts(lambda first, last: done.append(range(first, last)), rows, at_least)
    assert len(done) == parts
    assert sorted(row for part in done for row in part) == list(range(rows))


def test_an_error_in_a_thread_is_raised(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)

    def fails(first, last):
        if first:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        compiled.in_parts(fails, 4, 1)
