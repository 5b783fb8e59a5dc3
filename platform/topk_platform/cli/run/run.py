"""The command that runs a study."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated

import typer
from rich.console import Console

from topk_platform.cli import options
from topk_platform.cli.consoles import make_console, print_json
from topk_platform.cli.options import nonblank, under
from topk_platform.cli.run.interrupting import Course, interrupts_reported
from topk_platform.cli.run.outcome import exit_code, print_summary, summary_data
from topk_platform.cli.run.view import make_view
from topk_platform.cli.studies import requested_study
from topk_platform.errors import UserError
from topk_platform.running.driver.study import run as run_study
from topk_platform.running.driver.summary import Summary, problems

__all__ = ["run"]

_location, _limit, _care, _output = map(under, ("Where things are", "How much at most", "Care", "Output"))

Accelerator = Annotated[
    str | None,
    _location(help="The only kind of GPU to train on, by Ray's name: A100, L4, ...", callback=nonblank),
]
Wait = Annotated[
    float | None,
    _location(
        help="Seconds to wait for the cluster's head, and for a node that has room for a trial; 60 by default. A head "
        "that exists always has 20 s to answer, and a node 120 s."
    ),
]
Workers = Annotated[
    int | None, _limit(help="How many trials run at once; by default as many as the cores or GPUs allow.")
]
Checkpoints = Annotated[
    float,
    _care(
        min=0,
        help="Least number of seconds between two checkpoints of a trial. A trial that is interrupted continues from "
        "its last checkpoint.",
    ),
]
RetryFailed = Annotated[
    bool, _care("--retry-failed", help="Run failed trials again. The new records replace the old ones.")
]
Networks = Annotated[
    bool,
    _care(
        "--networks",
        help="Also repeat confirmations whose network is missing or damaged. Confirmations without ranks or guesses "
        "are always repeated.",
    ),
]
Mixed = Annotated[
    bool,
    _care(
        "--mixed",
        help="Let machines and package versions differ: the results of all of them count, and the table says so.",
    ),
]
MaxHours = Annotated[
    float | None,
    _limit("--max-hours", help="Hours that this run may take; the same command continues later."),
]
MaxGpuHours = Annotated[
    float | None, _limit("--max-gpu-hours", help="GPU hours that this run may use, summed over all GPUs.")
]
MaxTrials = Annotated[int | None, _limit("--max-trials", help="How many trials may start in this run.")]
Quiet = Annotated[bool, _output("--quiet", "-q", help="Print only problems.")]
Events = Annotated[bool, _output("--json", help="Print every event as a line of JSON.")]


def run(
    study: options.Study,
    store: options.Store = "runs",
    address: options.Address = None,
    accelerator: Accelerator = None,
    wait: Wait = None,
    searches: options.Searches = None,
    trials: options.Trials = None,
    seeds: options.Seeds = None,
    only: options.Only = None,
    workers: Workers = None,
    mlflow: options.Mlflow = None,
    checkpoints: Checkpoints = 30.0,
    data: options.Data = None,
    download: options.Download = False,
    retry_failed: RetryFailed = False,
    networks: Networks = False,
    mixed: Mixed = False,
    max_hours: MaxHours = None,
    max_gpu_hours: MaxGpuHours = None,
    max_trials: MaxTrials = None,
    smoke: options.Smoke = False,
    quiet: Quiet = False,
    json: Events = False,
) -> None:
    """Run what is missing of a study, then print its table. The same command resumes an interrupted study.

    Example: topk run letters_quick --only 'noise-0.8/*' --max-hours 2
    """
    if quiet and json:
        raise UserError("--quiet and --json exclude each other: leave one out")
    console = None if quiet or json else make_console()
    requested = requested_study(study, smoke, address, console, store, searches)
    start = partial(
        run_study,
        requested,
        store=store,
        address=address,
        trials=trials,
        seeds=seeds,
        only=only,
        workers=workers,
        mlflow_uri=mlflow,
        checkpoint_seconds=checkpoints,
        data=data,
        download=download,
        retry_failed=retry_failed,
        networks=networks,
        mixed=mixed,
        max_hours=max_hours,
        max_gpu_hours=max_gpu_hours,
        max_trials=max_trials,
        accelerator=accelerator,
        wait=wait,
        waiting=(lambda _: None) if quiet else partial(typer.echo, err=True),
    )
    filled = store if mlflow is None else ""
    raise typer.Exit(_shown(start, console, filled, json=json))


def _shown(start: Callable[..., Summary], console: Console | None, filled: str, *, json: bool) -> int:
    """Run a study, show its progress and its summary, and return the exit code; without a console, print no table.

    ``filled`` is the store if its own MLflow gets the run; empty if another one or none does.
    """
    course = Course(json=json)
    view = make_view(console or make_console(), quiet=console is None, json=json)
    with interrupts_reported(course) as signals, view as show:
        summary = start(progress=course.followed(show))
    code = 128 + signals[0] if summary.interrupted and signals else exit_code(summary)
    if json:
        print_json({**summary_data(summary), "exit_code": code}, lines=True)
    elif console is None:
        console = make_console(stderr=True)
        for line in problems(summary):
            console.print(line)
    else:
        print_summary(console, summary, filled)
    return code
