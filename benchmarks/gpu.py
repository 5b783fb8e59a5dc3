"""All that waits for a GPU, in one command: tests, a study of seconds, benchmarks; one report, whatever fails.

    python benchmarks/gpu.py                              # what `make gpu` runs, in at most nine minutes
    python benchmarks/gpu.py --only kernels losses        # some of the steps
    python benchmarks/gpu.py --device cpu                 # a rehearsal: all that a CPU can do

Most steps need no more than torch, torchvision, numpy, pyarrow, scikit-learn, pytest and hypothesis: no network, no
Ray, not this package. A step that needs more is skipped where it is missing, and the report names it. Each step is a
process of its own with a share of the time; what one leaves over the next ones have. The report is a Markdown file,
written anew before and after every step. The exit code is 1 if any step failed.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("losses", "platform", "studies")
KERNELS = "tests/losses/kernels"
MEMORY = ("tests/platform/running/cluster/test_gpu_share.py",)
LONGEST = 400  # lines of a step's output in the report
GRACE = 5.0  # seconds that a step has to end in good order
MINUTES = 9.0


@dataclass(frozen=True)
class Step:
    """One command.

    Args:
        name: What ``--only`` calls it.
        title: What it does.
        command: Arguments; run in the repository's root, or in ``folder`` of it.
        share: Its weight when the time that is left is shared out.
        lines: The last lines of its output that the report has where it passed.
        environment: Variables beside the caller's.
        skipped: Why it is not run, if it is not.
        required: Whether the others are pointless without it.
    """

    name: str
    title: str
    command: tuple[str, ...]
    share: float = 1.0
    lines: int = LONGEST
    folder: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    skipped: str = ""
    required: bool = False


@dataclass
class Result:
    """What has become of a step."""

    step: Step
    outcome: str = "waiting"
    seconds: float = 0.0
    output: str = ""

    @property
    def failed(self) -> bool:
        """Whether it is the exit code's affair."""
        return self.outcome.startswith(("failed", "cut off", "left out"))

    @property
    def reported(self) -> str:
        """One line: the outcome, and where it failed the last thing that it printed."""
        last = self.output.rstrip().splitlines()[-1:] if self.failed else []
        return ": ".join([f"{self.outcome}, {self.seconds:.0f} s", *last])


def has(*modules: str) -> bool:
    """Whether modules are installed; they are not imported."""
    return all(importlib.util.find_spec(module) is not None for module in modules)


def missing(*modules: str) -> str:
    """Return which modules are not installed, in words; empty if all are."""
    names = [module for module in modules if not has(module)]
    return f"{', '.join(names)} missing" if names else ""


def pytest_command(*arguments: str, processes: int = 8) -> tuple[str, ...]:
    """Tests, with no plugin needed: the project's own options would ask for some."""
    plain = ("-o", "addopts=--import-mode=importlib --strict-markers", "-q", "-ra")
    # Where pytest-benchmark is installed, each process warns that it is off beside xdist.
    plugins = ("-p", "no:cacheprovider", "-p", "no:benchmark")
    several = ("-n", str(min(processes, os.cpu_count() or 1))) if processes > 1 and has("xdist") else ()
    return (sys.executable, "-m", "pytest", *plain, *plugins, *several, "--durations=10", *arguments)


def script(name: str, arguments: str) -> tuple[str, ...]:
    """One of the scripts beside this one."""
    return (sys.executable, f"benchmarks/{name}.py", *arguments.split())


def marked_files() -> list[str]:
    """The test files with tests marked gpu, the kernels' own folder aside: all others may import what is missing."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    marked = [path.relative_to(ROOT).as_posix() for path in files if "mark.gpu" in path.read_text()]
    return [name for name in marked if not name.startswith(KERNELS)]


def steps(device: str, scratch: Path) -> list[Step]:
    """All steps, what is most worth knowing first.

    Args:
        device: ``"cuda"``, or ``"cpu"`` for a rehearsal.
        scratch: A folder for what they write.
    """
    machine = Step(
        "machine", "What the machine has", script("machine", f"--device {device}"), 0.5, required=True
    )
    return [machine, *_tests(device), *_studies(device, scratch), *_timings(device)]


def _tests(device: str) -> list[Step]:
    interpreted = device == "cpu"
    kernels = Step(
        "kernels",
        "The Triton kernels' tests" + (", in Triton's interpreter" if interpreted else ""),
        pytest_command(KERNELS, *(("-m", "not gpu") if interpreted else ())),
        3,
        40,
        environment={"TRITON_INTERPRET": "1"} if interpreted else {},
        skipped="" if has("triton") else "Triton is not installed",
    )
    lacks = missing("deltalake", "optuna", "safetensors")  # what the tests of the platform import
    marked = [name for name in marked_files() if name not in MEMORY]
    ours = [name for name in marked if name.startswith("tests/losses")]
    modules = pytest_command("-m", "gpu", *ours)
    others = pytest_command("-m", "gpu", *(name for name in marked if name not in ours))
    alone = pytest_command("-m", "gpu", *MEMORY, processes=1)
    return [
        kernels,
        Step("modules", "The losses' modules", modules, 1, 40),
        Step("tests", "All other tests marked gpu that share it", others, 2, 40, skipped=lacks),
        Step("memory", "Tests of the GPU's memory, with no process beside them", alone, 1, 40, skipped=lacks),
    ]


def _studies(device: str, scratch: Path) -> list[Step]:
    topk = (sys.executable, "-c", "from topk_platform.cli import main; main()")
    alone = Step(
        "training",
        "A study of seconds through the training engine, without Ray",
        script("gpu_study", f"--device {device}"),
        2,
    )
    whole = Step(
        "study",
        "The same study with Ray",
        (*topk, "run", f"gpu_study:on_{device}", "--store", str(scratch / "store")),
        3,
        folder="benchmarks",
        skipped=missing("ray", "optuna", "mlflow", "typer", "safetensors", "deltalake"),
    )
    moved = Step(
        "regression",
        "Small trials of every loss beside the stored results of a CPU",
        script("regression", f"--device {device}"),
        2,
    )
    return [alone, whole, moved]


def _timings(device: str) -> list[Step]:
    cpu = device == "cpu"
    few = "--repetitions 1 --members 2 --images 200 --batch 20 --steps 1 --losses smooth_topk_svm noised_topk_hinge"
    losses = Step(
        "losses",
        "The losses' kernels beside torch's cross-entropy",
        script("losses_gpu", "--repetitions 11"),
        2,
        skipped="CUDA kernels are not timed on a CPU" if cpu else "",
    )
    python = Step(
        "python",
        "What Python costs of a step, and kernels in compiled graphs" + (", traced" if cpu else ""),
        script("python_gpu", f"--device {device}"),
        2,
        skipped=missing("triton"),
    )
    speed = Step(
        "speed",
        "Training: ensembles, images a second, steps with each loss, checkpoints",
        script("training", f"--device {device} {few if cpu else '--repetitions 5'}"),
        2,
    )
    return [losses, python, speed]


def run(step: Step, seconds: float, scratch: Path) -> Result:
    """Run a step for so many seconds at most; whatever it started is ended with it."""
    path = scratch / f"{step.name}.log"
    places = [str(ROOT / package) for package in PACKAGES]
    search = os.pathsep.join([*places, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": search, **step.environment}
    began = time.monotonic()
    with path.open("w") as log:
        process = subprocess.Popen(  # noqa: S603 - our own commands
            step.command,
            cwd=ROOT / step.folder,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            process_group=0,  # its processes are ended together, but not a session that would outlive ours
        )
        try:
            outcome = _outcome(process.wait(timeout=seconds))
        except subprocess.TimeoutExpired:
            outcome = f"cut off after {seconds:.0f} s"
        finally:
            _end(process)
    return Result(step, outcome, time.monotonic() - began, path.read_text(errors="replace"))


def _outcome(code: int) -> str:
    return "passed" if code == 0 else f"failed with exit code {code}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and its children: at first so that it can tell where it stands."""
    for number, patience in ((signal.SIGINT, GRACE), (signal.SIGKILL, None)):
        if process.poll() is None or number == signal.SIGKILL:
            try:
                os.killpg(process.pid, number)
                process.wait(timeout=patience)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue


def report(results: Sequence[Result], options: argparse.Namespace) -> str:
    """The report as far as it is known: a summary, then what each step printed."""
    command = shlex.join(["python", "benchmarks/gpu.py", "--device", options.device])
    rows = [f"| {r.step.name} | {r.step.title} | {r.outcome} | {r.seconds:.0f} |" for r in results]
    head = [
        "# What a GPU had to say",
        "",
        f"`{command}`, {time.strftime('%Y-%m-%d %H:%M:%S %z')}: {summary(results)}",
    ]
    table = ["", "| step | what | outcome | seconds |", "|---|---|---|---|", *rows]
    return "\n".join([*head, *table, *(line for r in results for line in section(r))]) + "\n"


def summary(results: Sequence[Result]) -> str:
    """One line: how many steps passed, and which did not."""
    failed = [r.step.name for r in results if r.failed]
    passed = sum(r.outcome == "passed" for r in results)
    return f"{passed} of {len(results)} steps passed, {', '.join(failed) or 'none'} failed."


def section(result: Result) -> list[str]:
    """A step's command and the end of its output; all of it where it failed."""
    if not result.output:
        return []
    kept = result.step.lines if result.outcome == "passed" else LONGEST
    lines = result.output.rstrip().splitlines()
    left_out = [f"({len(lines) - kept} lines before these)"] if len(lines) > kept else []
    variables = [f"{name}={value}" for name, value in result.step.environment.items()]
    command = " ".join([*variables, shlex.join(result.step.command)])
    title = f"## {result.step.name}: {result.outcome}"
    return ["", title, "", f"`{command}`", "", "```text", *left_out, *lines[-kept:], "```"]


def work(todo: Sequence[Step], options: argparse.Namespace, scratch: Path) -> list[Result]:
    """Run the steps one after another, and keep the report up to date."""
    results = [Result(step) for step in todo]
    until = time.monotonic() + 60 * options.minutes
    for index, step in enumerate(todo):
        reason = "skipped: " + step.skipped if step.skipped else _pointless(results[:index])
        if reason:
            results[index].outcome = reason
            continue
        results[index].outcome = "running"
        options.report.write_text(report(results, options))
        ahead = [other.share for other in todo[index:] if not other.skipped]
        seconds = max(0.0, until - time.monotonic() - GRACE) * step.share / sum(ahead)
        print(f"{step.name}: {step.title}, at most {seconds:.0f} s", flush=True)
        results[index] = run(step, seconds, scratch)
        print(f"  {results[index].reported}", flush=True)
        options.report.write_text(report(results, options))
    return results


def _pointless(before: Sequence[Result]) -> str:
    broken = [result.step.name for result in before if result.step.required and result.failed]
    return f"left out, for {broken[0]} failed" if broken else ""


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda", help="cpu: a rehearsal")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="for everything")
    parser.add_argument("--report", type=Path, default=ROOT / "gpu-report.md")
    parser.add_argument("--only", nargs="+", metavar="STEP", help="by default all of them")
    return parser.parse_args(arguments)


def _stop(number: int, _: object) -> NoReturn:
    sys.exit(128 + number)  # by way of what ends the step under way


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the steps, write the report, print its summary."""
    options = parse(arguments)
    signal.signal(signal.SIGTERM, _stop)
    with tempfile.TemporaryDirectory(prefix="topk-gpu-") as name:
        scratch = Path(name)
        todo = steps(options.device, scratch)
        known = [step.name for step in todo]
        if unknown := sorted(set(options.only or ()) - set(known)):
            raise SystemExit(f"--only must name steps among {known}, got {unknown}")
        results = work([s for s in todo if not options.only or s.name in options.only], options, scratch)
    options.report.write_text(report(results, options))
    print(f"{summary(results)} {options.report} has it all.")
    sys.exit(any(result.failed for result in results))


if __name__ == "__main__":
    main()
