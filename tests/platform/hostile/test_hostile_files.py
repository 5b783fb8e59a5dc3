"""Findings and exported networks that somebody changed: the same result, or one line that names the file.

``BREAK_SEED`` and ``BREAK_CASES`` choose other cases, and more of them; each case's name is printed if it fails.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import hostile
import pytest
from forks import Commands, Ended

SEED = int(os.environ.get("BREAK_SEED", "0"))
CASES = int(os.environ.get("BREAK_CASES", "12"))  # of each kind of file
MEBIBYTES = 1024  # above what a command of a good file takes


def kinds(ways: object) -> list[tuple[str, int]]:
    """The cases: every way in turn, each with a seed of its own."""
    names = list(ways)  # type: ignore[call-overload]
    numbers = random.Random(SEED)
    return [(names[n % len(names)], numbers.randrange(10**9)) for n in range(max(CASES, len(names)))]


def check(ended: Ended, good: Ended, folder: Path, name: str) -> str:
    """Return what became of a case: ``"refused"``, ``"differs"`` or ``"read"``."""
    assert ended.code is not None, "it hung"
    assert not hostile.sung(folder), "the canary ran"
    assert ended.mebibytes < good.mebibytes + MEBIBYTES, f"it took {ended.mebibytes:.0f} MiB"
    assert ended.code in (0, 1, 2), ended
    assert "\x1b" not in ended.out + ended.err and "\u202e" not in ended.out + ended.err, ended
    if ended.code == 2:
        assert name in ended.err and ended.err.startswith("topk: ") and ended.err.count("\n") == 1, ended
        assert ended.out == "", ended
        return "refused"
    assert "Traceback" not in ended.err, ended
    return "differs" if ended.code else "read"


@pytest.fixture(scope="module")
def findings(topk: Commands) -> Ended:
    return topk.run("table", "good.json.gz")


@pytest.fixture(scope="module")
def predicted(topk: Commands) -> Ended:
    ended = topk.run("predict", "good", "x.npy")
    assert ended.code == 0
    return ended


@pytest.mark.breaks
@pytest.mark.parametrize(("kind", "seed"), kinds(hostile.FINDINGS))
def test_findings(kind: str, seed: int, good: Path, topk: Commands, findings: Ended) -> None:
    hostile.mutated_file(
        (good / "good.json.gz").read_bytes(), good / "bad.json.gz", hostile.FINDINGS, kind, seed
    )
    ended = topk.run("table", "bad.json.gz")
    outcome = check(ended, findings, good, "bad.json.gz")
    assert outcome in ("read", "refused")
    if kind in hostile.CARELESS and outcome == "read":
        assert ended.out == findings.out
    if outcome == "read":
        output = ("csv", "md", "html", "latex")[seed % 4]
        check(topk.run("table", "bad.json.gz", "--format", output), findings, good, "bad.json.gz")


@pytest.mark.breaks
@pytest.mark.parametrize(("kind", "seed"), kinds(hostile.EXPORTS))
def test_exported_networks(kind: str, seed: int, good: Path, topk: Commands, predicted: Ended) -> None:
    hostile.mutated_folder(good / "good", good / "bad", kind, seed)
    ended = topk.run("predict", "bad", "x.npy")
    outcome = (
        check(ended, predicted, good, "bad") if ended.code != 2 or "x.npy" not in ended.err else "refused"
    )
    assert outcome in ("read", "refused")
    if kind in ("bytes", "deep", "gone") and outcome == "read":
        assert ended.out == predicted.out
    if kind == "references":
        assert outcome == "refused"
