"""A small study of a user's own, run by the real command on real Ray."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from topk_platform.records import Ledger, Store

LAB = """
from topk_platform import Arm, Float, LabelNoise, Loss, Model, Protocol, Pruning, Recipe, Regime, Study, grid

rate = Float(0.01, 1, log=True)
losses = [
    Loss("cross_entropy", {"learning_rate": rate, "temperature": Float(0.1, 10, log=True)},
         {"learning_rate": 0.1, "temperature": 1.0}),
    Loss("smooth_topk_svm", {"learning_rate": rate, "tau": Float(0.01, 10, log=True)},
         {"learning_rate": 0.1, "tau": 0.31}),
]
noisy = Regime("noisy", "digits", (LabelNoise(0.4),))


def study(*more):
    arms = grid([noisy], [Model("mlp", {"hidden": 16})], [*losses, *more], k=3,
                recipe=Recipe(epochs=8), protocol=Protocol(random=2, pruning=Pruning(startup=2)))
    return Study("small", arms, topk=(1, 3), trials=6, seeds=2)


def long():
    arms = grid([noisy], [Model("mlp", {"hidden": 16})], [Loss("noised_topk_hinge")], k=3, recipe=Recipe(epochs=300))
    return Study("small", arms, topk=(1, 3), seeds=1, baseline="noised_topk_hinge")


def wider():
    return study(Loss("ldam", {"learning_rate": rate}, {"learning_rate": 0.1}, {"scale": 10.0}, head="cosine"))
"""

TIMES = {"train_seconds", "started", "ended", "seconds", "step_seconds"}


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lab")
    (folder / "my_lab.py").write_text(LAB)
    return folder


@pytest.fixture(scope="session")
def topk(lab: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the command in the lab's folder."""

    def call(*arguments: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command(*arguments), cwd=lab, capture_output=True, text=True, timeout=300, env=environment()
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    return call


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-c", "from topk_platform.cli import main; main()", *map(str, arguments)]


def environment() -> dict[str, str]:
    return {**os.environ, "COLUMNS": "160"}


@pytest.fixture(scope="session")
def start(lab: Path) -> Callable[..., subprocess.Popen[bytes]]:
    """Start the command in the lab's folder and return its process."""

    def call(*arguments: str | Path) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command(*arguments),
            cwd=lab,
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    return call


@pytest.fixture(scope="session")
def reference(
    topk: Callable[..., subprocess.CompletedProcess[str]], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The store of an undisturbed run with two workers."""
    store = tmp_path_factory.mktemp("reference")
    topk("run", "my_lab:study", "--store", store, "--workers", "2")
    return store


@pytest.fixture(scope="session")
def content() -> Callable[[Path], dict[str, list[dict[str, Any]]]]:
    """Return all that a store's ledger says of the study `small`, but times, in an order of its own."""

    def read(store: Path) -> dict[str, list[dict[str, Any]]]:
        ledger = Ledger.open(Store.open(store), "small")
        tables = {kind: ledger.read(kind).to_pylist() for kind in ("trials", "epochs")}
        return {
            kind: sorted(
                ({name: value for name, value in row.items() if name not in TIMES} for row in rows),
                key=lambda row: (row["key"], row.get("epoch", 0)),
            )
            for kind, rows in tables.items()
        }

    return read
