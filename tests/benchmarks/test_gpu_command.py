"""`make gpu` without a GPU: its steps, its report, and that it goes on past what fails."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from scripts import loaded

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu.py"
GPU = loaded(SCRIPT, "gpu_command")


def python(name: str, code: str, **fields: Any) -> Any:
    """A step that runs Python code."""
    return GPU.Step(name, name, (sys.executable, "-c", code), **fields)


def test_it_goes_on_past_a_failure_and_reports_all(tmp_path: Path) -> None:
    todo = [
        python("good", "print('one\\ntwo\\nthree')", lines=2),
        python("bad", "print('so far'); raise SystemExit('no good')", lines=1),
        python("absent", "", skipped="Ray is missing"),
        python("last", "import os; print(os.environ['MARK'])", environment={"MARK": "seen"}),
    ]
    options = argparse.Namespace(device="cpu", minutes=1.0, report=tmp_path / "report.md")
    results = GPU.work(todo, options, tmp_path)
    outcomes = [result.outcome for result in results]
    assert outcomes == ["passed", "failed with exit code 1", "skipped: Ray is missing", "passed"]
    assert results[1].reported.endswith(": no good")
    text = options.report.read_text()
    assert "2 of 4 steps passed, bad failed." in text
    assert "(1 lines before these)\ntwo\nthree\n" in text
    assert "so far\nno good\n" in text
    assert "MARK=seen" in text and "\nseen\n" in text


@pytest.mark.slow
def test_a_step_out_of_time_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(child.pid)\n"
        "time.sleep(600)"
    )
    result = GPU.run(python("endless", code), 5.0, tmp_path)
    assert result.outcome == "cut off after 5 s"
    assert result.failed
    child = Path("/proc") / result.output.split()[0] / "cmdline"
    for _ in range(100):
        if not (child.exists() and child.read_bytes()):  # gone, or waiting to be collected
            return
        time.sleep(0.1)
    raise AssertionError(f"process {child.parent.name} is still there")


def test_every_file_with_a_test_marked_gpu_is_run() -> None:
    assert "tests/platform/training/test_gpu.py" in GPU.marked_files()
    for step in GPU.steps("cuda", Path("scratch")):
        for argument in step.command:
            if argument.startswith(("tests/", "benchmarks/")):
                assert (SCRIPT.parents[1] / argument).exists(), argument


@pytest.mark.slow
def test_the_rehearsal_on_the_cpu(tmp_path: Path) -> None:
    """The study's arms learn, repeat and resume; the tests marked gpu can be collected."""
    report = tmp_path / "report.md"
    command = [sys.executable, SCRIPT, "--device", "cpu", "--report", report]
    steps = ["--only", "machine", "tests", "training"]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    run = subprocess.run([*command, *steps], capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stdout + report.read_text()
    assert "3 of 3 steps passed, none failed." in run.stdout
    assert "**no**" not in report.read_text()
