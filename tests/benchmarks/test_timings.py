"""The benchmarks that time losses: by their defaults each takes its steps with every loss that it names."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from topk_platform.training import LOSSES

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """A function that imports a benchmark by its name; the number of threads stays as it is."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    threads = torch.get_num_threads()
    yield importlib.import_module
    torch.set_num_threads(threads)


def rows_of(output: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in output.splitlines() if line[:1] == "|"
    ]


def test_a_training_step_is_timed_with_every_loss(
    benchmark: Callable[[str], ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    few = ["--images", "100", "--batch", "10", "--steps", "1", "--repetitions", "1"]
    monkeypatch.setattr(sys, "argv", ["training.py", "losses", *few])
    benchmark("training").main()
    _, _, *rows = rows_of(capsys.readouterr().out)
    assert [row[0] for row in rows] == sorted(set(LOSSES) - {"cross_entropy"})
