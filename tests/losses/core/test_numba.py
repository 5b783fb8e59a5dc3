"""The way to machine code: threads, and life without Numba."""

import importlib.util
import sys

import pytest
import torch

from topk_losses._core import numba
from topk_losses.functional import smooth_topk_svm


@pytest.fixture
def numba_fails(monkeypatch):
    """A Numba that is installed and cannot be imported."""
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    numba.is_there.cache_clear()
    yield
    numba.is_there.cache_clear()


def test_a_numba_that_cannot_be_imported_leaves_the_losses_to_torch(numba_fails):
    scores = torch.randn(4, 100, generator=torch.Generator().manual_seed(0))
    with pytest.warns(UserWarning, match="losses run in plain torch"):
        assert smooth_topk_svm(scores, torch.arange(4), 5).isfinite()


@pytest.mark.parametrize(("rows", "at_least", "parts"), [(10, 1, 3), (10, 4, 2), (10, 11, 1), (0, 1, 1)])
def test_rows_are_shared_among_as_many_threads_as_torch_has(rows, at_least, parts, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    done = []
    numba.in_parts(lambda first, last: done.append(range(first, last)), rows, at_least)
    assert len(done) == parts
    assert sorted(row for part in done for row in part) == list(range(rows))


def test_an_error_in_a_thread_is_raised(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)

    def fails(first, last):
        if first:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        numba.in_parts(fails, 4, 1)
