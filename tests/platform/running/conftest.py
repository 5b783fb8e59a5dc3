"""A laboratory of a user's own: modules outside the checkout, and the command run there."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from topk_platform.records import Ledger, Store

LAB = '''
"""Losses that misbehave, and data that write down where they are loaded."""
import json, os, pathlib, signal, sys, time
import ray, torch
from torch import nn
from topk_platform import Float, Loss, Model, Recipe, Regime, Study, grid
from topk_platform.data import digits
import labparts.parts

FOLDER = pathlib.Path(os.environ["LAB_FOLDER"])

def note(name, text):
    with open(FOLDER / name, "a") as file:
        file.write(text + "\\n")

def data():
    if ray.is_initialized():  # not so in the driver when it checks the study
        note("workers.jsonl", json.dumps({
            "files": [sys.modules[n].__file__ for n in ("topk_platform", "topk_losses", "lab", "labparts")],
            "shipped": sorted(str(p.relative_to(pathlib.Path(labparts.__file__).parent))
                              for p in pathlib.Path(labparts.__file__).parent.rglob("*")),
            "resources": ray.get_runtime_context().get_assigned_resources()}))
    return digits()

class Mischief(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how = how
    def forward(self, scores, target):
        if not ray.is_initialized():  # the driver's dry step
            return nn.functional.cross_entropy(scores, target)
        mark = FOLDER / "died"
        if self.how == "always" or (self.how in ("once", "edits") and not mark.exists()):
            mark.touch()
            if self.how == "edits":
                with open(__file__, "a") as file:
                    file.write("# edited while the study runs\\n")
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "raises":
            raise ArithmeticError("no such luck")
        if self.how == "stale" and not (FOLDER / "repaired").exists():
            raise OSError("stale NFS handle")
        if self.how == "exits":
            sys.exit("enough of it")
        if self.how == "interrupts":
            raise KeyboardInterrupt
        if self.how == "slow":
            time.sleep(0.02)
        if self.how == "nasty":
            torch.set_default_dtype(torch.float64)
            torch.manual_seed(7)
            torch.set_num_threads(2)
            torch.use_deterministic_algorithms(True)
        return nn.functional.cross_entropy(scores, target) * (float("nan") if self.how == "nan" else 1)

def mischief(how="none"):
    note("pids.txt", f"{os.getpid()} {how}")
    return Mischief(how)

def with_dropout(shape, classes, head):
    hidden = [nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.5)]
    return nn.Sequential(*hidden, nn.Linear(16, classes))

RATE = {"learning_rate": Float(0.01, 1, log=True)}
FIRST = {"learning_rate": 0.1}

def study(*hows, name="lab", trials=1, seeds=1, epochs=1, **more):
    losses = [Loss("lab:mischief", RATE, FIRST, {"how": how}, label=how) for how in hows]
    arms = grid([Regime("plain", "lab:data")], [Model("labparts.parts:with_dropout")], losses, k=3,
                recipe=Recipe(epochs=epochs))
    return Study(name, arms, topk=(1, 3), trials=trials, seeds=seeds, baseline="none", **more)

def plain(): return study("none")
def edited(): return study("none", "edits")
def stale(): return study("none", "stale")
def lost(): return study("none", "once", "always", "raises", "nan", "exits", "interrupts")
def reused(): return study("nasty", "none")
def slow(): return study("slow", "none", trials=3, epochs=3)
def on_gpu(): return study("none", device="cuda", gpus=0.5)
def too_large(): return study("none", device="cuda", gpus=4)
'''

PARTS = """
def with_dropout(shape, classes, head):
    from lab import with_dropout
    return with_dropout(shape, classes, head)
"""

TIMES = {"train_seconds", "started", "ended", "seconds", "step_seconds"}


@dataclass
class Lab:
    """A folder with a user's modules, and the command run beside them.

    Args:
        folder: Where ``lab.py`` and ``labparts/`` lie, and what they write.
        mark: Is in the environment of every process that was started from here.
    """

    folder: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    def environment(self, **more: str) -> dict[str, str]:
        return {
            **os.environ,
            "COLUMNS": "200",
            "LAB_FOLDER": str(self.folder),
            "RAY_AUTH_MODE": "disabled",
            "TOPK_TEST_MARK": self.mark,
            **more,
        }

    def start(self, *arguments: str | Path, cwd: Path | None = None, **more: str) -> subprocess.Popen[str]:
        """Start the command as a terminal does, in a process group of its own."""
        code = "from topk_platform.cli import main; main()"
        return subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments)],
            cwd=cwd or self.folder,
            env=self.environment(**more),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def topk(
        self, *arguments: str | Path, code: int = 0, cwd: Path | None = None, **more: str
    ) -> tuple[str, str]:
        """Run the command; return what it wrote to stdout and stderr."""
        process = self.start(*arguments, cwd=cwd, **more)
        out, err = process.communicate(timeout=300)
        assert process.returncode == code, out + err
        return out, err

    def processes(self) -> list[str]:
        """Return the command lines of what runs with this lab's mark in its environment."""
        return list(self.running().values())

    def running(self) -> dict[int, str]:
        """Return the same by process id."""
        found = {}
        for place in Path("/proc").glob("[0-9]*"):
            try:
                if self.mark.encode() in (place / "environ").read_bytes():
                    found[int(place.name)] = (place / "cmdline").read_text().replace("\0", " ")
            except OSError:  # it has ended meanwhile
                continue
        return found


def until(condition: Callable[[], bool], what: str, seconds: float = 120) -> None:
    """Wait for a condition."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds} s for {what}"
        time.sleep(0.05)


def rows(store: Path, study: str = "lab", kind: str = "trials") -> list[dict[str, Any]]:
    """Return a ledger's rows without times, in an order of their own."""
    table = Ledger.open(Store.open(store), study).read(kind).to_pylist()
    plain = ({name: value for name, value in row.items() if name not in TIMES} for row in table)
    return sorted(plain, key=lambda row: (row["key"], row.get("epoch", 0)))


@pytest.fixture(scope="session", name="until")
def until_fixture() -> Callable[..., None]:
    return until


@pytest.fixture(scope="session", name="rows")
def rows_fixture() -> Callable[..., list[dict[str, Any]]]:
    return rows


@pytest.fixture(scope="session")
def make_lab(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Lab]:
    def make() -> Lab:
        folder = tmp_path_factory.mktemp("lab")
        (folder / "lab.py").write_text(LAB)
        parts = folder / "labparts"
        (parts / "__pycache__").mkdir(parents=True)
        (parts / "__pycache__" / "old.pyc").write_text("")
        (parts / "__init__.py").write_text("")
        (parts / "parts.py").write_text(PARTS)
        return Lab(folder)

    return make


@pytest.fixture
def lab(make_lab: Callable[[], Lab]) -> Lab:
    return make_lab()
