"""The command that runs a study."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from topk_platform.cli.consoles import make_console, print_json
from topk_platform.cli.options import (
    DataOption,
    DownloadOption,
    MlflowOption,
    OnlyOption,
    SearchesOption,
    SeedsOption,
    SmokeOption,
    StoreOption,
    StudyArgument,
    TrackNetworksOption,
    TrackOption,
    TrackSearchOption,
    TrialsOption,
    named_place,
)
from topk_platform.cli.studies import wanted_study
from topk_platform.errors import UserError

__all__ = ["run"]

_LIMITS, _CARE, _OUTPUT = "How much at most", "Care", "Output"


def run(
    study: StudyArgument,
    store: StoreOption = "runs",
    address: Annotated[
        str | None,
        typer.Option(
            help="A Ray cluster: host:port or auto.", callback=named_place, rich_help_panel="Where things are"
        ),
    ] = None,
    accelerator: Annotated[
        str | None,
        typer.Option(
            help="The only kind of GPU to train on, by Ray's name: A100, L4, ...",
            rich_help_panel="Where things are",
        ),
    ] = None,
    wait: Annotated[
        float | None,
        typer.Option(
            help="Seconds to wait for the cluster's head, and for a node on which a trial fits; 60 by default. What is "
            "there may take 20 s (a head) or 120 s (a node) to answer in any case.",
            rich_help_panel="Where things are",
        ),
    ] = None,
    searches: SearchesOption = None,
    trials: TrialsOption = None,
    seeds: SeedsOption = None,
    only: OnlyOption = None,
    workers: Annotated[
        int | None,
        typer.Option(
            help="How many trials run at once; by default as many as the cores or GPUs allow.",
            rich_help_panel=_LIMITS,
        ),
    ] = None,
    mlflow: MlflowOption = None,
    track: TrackOption = None,
    track_search: TrackSearchOption = "all",
    track_networks: TrackNetworksOption = True,
    checkpoints: Annotated[
        float,
        typer.Option(
            help="Least seconds between two checkpoints of a trial; a trial that is cut off "
            "continues from its last one.",
            rich_help_panel=_CARE,
        ),
    ] = 30.0,
    data: DataOption = None,
    download: DownloadOption = False,
    retry_failed: Annotated[
        bool,
        typer.Option(
            "--retry-failed",
            help="Run failed trials again, in place of their records.",
            rich_help_panel=_CARE,
        ),
    ] = False,
    networks: Annotated[
        bool,
        typer.Option(
            "--networks",
            help="Train confirmations again whose network is gone or damaged; those without ranks or guesses always "
            "are.",
            rich_help_panel=_CARE,
        ),
    ] = False,
    mixed: Annotated[
        bool,
        typer.Option(
            "--mixed",
            help="Let machines and package versions differ: results of all of them count, and the table says so.",
            rich_help_panel=_CARE,
        ),
    ] = False,
    max_hours: Annotated[
        float | None,
        typer.Option(
            "--max-hours",
            help="Hours that this run may take; the same command continues later.",
            rich_help_panel=_LIMITS,
        ),
    ] = None,
    max_gpu_hours: Annotated[
        float | None,
        typer.Option(
            "--max-gpu-hours",
            help="GPU hours that this run may use, over all GPUs together.",
            rich_help_panel=_LIMITS,
        ),
    ] = None,
    max_trials: Annotated[
        int | None,
        typer.Option("--max-trials", help="How many trials may start in this run.", rich_help_panel=_LIMITS),
    ] = None,
    smoke: SmokeOption = False,
    quiet: Annotated[
        bool,
        typer.Option("--quiet", "-q", help="Print only what went wrong.", rich_help_panel=_OUTPUT),
    ] = False,
    json: Annotated[
        bool,
        typer.Option("--json", help="Print every event as a line of JSON.", rich_help_panel=_OUTPUT),
    ] = False,
) -> None:
    """Run what is missing of a study, then print its table. The same command resumes an interrupted study."""
    if quiet and json:
        raise UserError("--quiet and --json exclude each other: leave one out")
    console = make_console()
    wanted = wanted_study(study, smoke, address, None if quiet or json else console, store, searches)
    # After the study, whose name may be misspelt, and never for `topk list`.
    from topk_platform.cli.interrupting import Course, interrupts_told  # noqa: PLC0415
    from topk_platform.cli.progress import make_view  # noqa: PLC0415
    from topk_platform.cli.summary import exit_code, print_problems, print_summary, summary_data  # noqa: PLC0415
    from topk_platform.running.driver.study import run as run_study  # noqa: PLC0415

    course = Course(json=json)
    with interrupts_told(course) as came, make_view(console, quiet=quiet, json=json) as view:
        summary = run_study(
            wanted,
            store=store,
            address=address,
            trials=trials,
            seeds=seeds,
            only=only,
            workers=workers,
            mlflow_uri=mlflow,
            track=track,
            track_search=track_search,
            track_networks=track_networks,
            checkpoint_seconds=checkpoints,
            progress=course.told(view),
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
            waiting=None if quiet else partial(typer.echo, err=True),
        )
    code = 128 + came[0] if summary.interrupted and came else exit_code(summary)
    if json:
        print_json({**summary_data(summary), "exit_code": code}, lines=True)
    elif quiet:
        print_problems(make_console(stderr=True), summary)
    else:
        print_summary(console, summary, store)
    raise typer.Exit(code)
