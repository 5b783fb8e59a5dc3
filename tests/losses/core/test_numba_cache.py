"""Where machine code is kept, when it is made anew, and what is said meanwhile."""

import importlib.util
import itertools
import os
import subprocess
import sys
import tempfile

import pytest

pytest.importorskip("numba")

from topk_losses._core import numba_cache

MODULE = """
from typing import NamedTuple
import numpy as np
from topk_losses._core.numba import compiled
class {name}(NamedTuple):
    values: np.ndarray
@compiled()
def total(pair):
    return pair.values.sum() + {constant}
def result():
    return total({name}(np.ones(3)))
"""


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """A function of a kind of folder, of those that are tried in their order: the folder, of this test alone."""
    paths = {
        "own variable": tmp_path / "own",
        "Numba's variable": tmp_path / "numbas",
        "beside the source": tmp_path / "family" / "__pycache__",
        "the user's": tmp_path / "home" / "topk_losses",
        "temporary": tmp_path / "temporary" / f"topk_losses-{os.getuid()}",
    }
    for kind in ("beside the source", "the user's", "temporary"):
        paths[kind].parent.mkdir()
    monkeypatch.delenv("TOPK_LOSSES_CACHE", raising=False)
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(paths["the user's"].parent))
    monkeypatch.setattr(tempfile, "tempdir", str(paths["temporary"].parent))
    return paths


@pytest.fixture
def module(tmp_path, folders, monkeypatch):
    """A function of a class's name and a constant: a module with a kernel, in the same file every time."""
    # Which is held to be true for as long as the source's size and second are the same.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def load(name="Pair", constant=1):
        path = tmp_path / "family" / "kept_kernel.py"
        path.write_text(MODULE.format(name=name, constant=constant))
        spec = importlib.util.spec_from_file_location("kept_kernel", path)
        loaded = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "kept_kernel", loaded)
        spec.loader.exec_module(loaded)
        return loaded

    return load


def kept_in(folder):
    return folder.is_dir() and bool(list(folder.rglob("*.nbc")))


def block(folder):
    """Have a file stand where the folder should be; rights would not keep root from writing."""
    folder.parent.mkdir(exist_ok=True, parents=True)
    folder.write_text("no folder")


def test_machine_code_is_kept(module, folders):
    assert module().result() == 4
    assert [kind for kind, folder in folders.items() if kept_in(folder)] == ["beside the source"]
    again = module()
    assert again.result() == 4
    assert sum(again.total.stats.cache_hits.values()) == 1
    assert not again.total.stats.cache_misses


def test_machine_code_is_made_anew_when_a_kernel_has_changed(module, monkeypatch):
    assert module().result() == 4
    monkeypatch.setattr(numba_cache, "_stamp", lambda: "of other kernels")
    changed = module(constant=2)
    assert changed.result() == 5
    assert not changed.total.stats.cache_hits


def test_the_stamp_is_of_all_kernels_and_of_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr(numba_cache, "PACKAGE", tmp_path)
    stamp = numba_cache._stamp.__wrapped__  # as a process sees it that starts now
    names = ("_core/numba.py", "_core/numba_cache.py", "_core/numba_kernels.py", "_family/cpu_kernels.py")
    for name in (*names, "_family/cpu.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("before")
    seen = [stamp()]
    for name in names:
        (tmp_path / name).write_text("after")
        seen.append(stamp())
    assert len(set(seen)) == len(seen)
    (tmp_path / "_family/cpu.py").write_text("after")
    assert stamp() == seen[-1]


def test_a_class_that_is_gone_does_no_harm(module):
    """Of such classes the index of what is kept has the names, and is read before the stamp is looked at."""
    assert module("Pair", 1).result() == 4
    assert module("Couple", 2).result() == 5


def test_without_a_place_beside_the_source_there_is_the_users_and_a_temporary_one(
    module, folders, monkeypatch
):
    order = ["own variable", "Numba's variable", "beside the source", "the user's", "temporary"]
    monkeypatch.setenv("TOPK_LOSSES_CACHE", str(folders["own variable"]))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(folders["Numba's variable"]))
    for kind, following in itertools.pairwise(order):
        block(folders[kind])
        assert module().result() == 4
        assert [other for other, folder in folders.items() if kept_in(folder)] == [following]
        again = module()
        assert again.result() == 4
        assert sum(again.total.stats.cache_hits.values()) == 1
        for path in sorted(folders[following].rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        folders[following].rmdir()


def test_without_any_place_machine_code_is_made_all_the_same(module, folders):
    for folder in folders.values():
        block(folder)
    loaded = module()
    assert loaded.result() == 4
    assert not hasattr(loaded.total._cache, "_cache_file")


def test_a_temporary_folder_is_made_for_the_user_alone(folders):
    assert numba_cache._private_folder() == folders["temporary"]
    assert folders["temporary"].stat().st_mode & 0o777 == 0o700
    assert numba_cache._private_folder() == folders["temporary"]


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701, "of somebody else", "a link"])
def test_a_temporary_folder_of_or_for_others_is_not_used(mode, folders, tmp_path, monkeypatch):
    if mode == "a link":
        (tmp_path / "other").mkdir(mode=0o700)
        folders["temporary"].symlink_to(tmp_path / "other")
    elif mode == "of somebody else":
        somebody = os.getuid() + 1
        folders["temporary"].with_name(f"topk_losses-{somebody}").mkdir(mode=0o700)
        monkeypatch.setattr(os, "getuid", lambda: somebody)
    else:
        folders["temporary"].mkdir()
        folders["temporary"].chmod(mode)
    assert numba_cache._private_folder() is None


PROCESS = """
import torch
from numba.core import event
from topk_losses._core import numba_cache
from topk_losses._rows.selection import largest
numba_cache.PATIENCE = {patience}
{change}
with event.install_recorder("numba:compile") as seen:
    values = largest(torch.arange(200.0).repeat(2, 1), 3).values
assert values.tolist() == 2 * [[199.0, 198.0, 197.0]]
print(len(seen.buffer))
"""


def run(patience=0.0, change=""):
    command = [sys.executable, "-c", PROCESS.format(patience=patience, change=change)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return int(done.stdout), done.stderr.count("is compiling its kernels")


@pytest.mark.slow
def test_a_second_process_compiles_nothing_and_says_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("TOPK_LOSSES_CACHE", str(tmp_path))
    compilations, notices = run()
    assert compilations > 0
    assert notices == 1
    assert run() == (0, 0)
    compilations, notices = run(600.0, change="numba_cache._stamp = lambda: 'of other kernels'")
    assert compilations > 0
    assert notices == 0
