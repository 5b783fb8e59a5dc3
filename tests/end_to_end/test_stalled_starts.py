"""A process that hangs while it starts or trains ends itself, and its trial is tried again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from labs import rows

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

# The first process that is to train hangs while it imports what it trains with, as on a file system that is gone.
HANGS = """
import os, sys, time

class First:
    def find_spec(self, name, path=None, target=None):
        if name == "topk_platform.running.worker" and "default_worker.py" in sys.argv[0]:
            try:
                os.close(os.open(os.environ["HUNG"], os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return None
            time.sleep(10**6)

sys.meta_path.insert(0, First())
"""


def test_a_process_that_hangs_while_it_starts_costs_a_try(lab: Any, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(HANGS)
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    out, err = run(lab, "lab:slow_to_start", tmp_path, PYTHONPATH=paths, HUNG=str(tmp_path / "hung"))
    assert (tmp_path / "hung").exists() and "stalled: its process showed no progress for" in out + err


def test_a_process_that_hangs_while_it_trains_costs_a_try(lab: Any, tmp_path: Path) -> None:
    """In the code of a loss, before an epoch has ended."""
    out, err = run(lab, "lab:hanging", tmp_path)
    assert "stalled: its process showed no progress for" in out + err
    by_loss = {row["loss"]: row["test.top3"] for row in rows(tmp_path / "store") if row["phase"] == "confirm"}
    assert by_loss["hangs"] == by_loss["none"]


def run(lab: Any, study: str, folder: Path, **environment: str) -> tuple[str, str]:
    """Run a study on one worker; return what it printed, each text on one line."""
    printed = lab.topk("run", study, "--store", folder / "store", "--workers", "1", **environment)
    assert {row["status"] for row in rows(folder / "store")} == {"completed"}
    out, err = (" ".join(text.split()) for text in printed)
    return out, err
