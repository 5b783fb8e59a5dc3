"""The command ``topk``."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console

from topk_platform.cli import asking, exporting, inspecting, reporting, standing, upkeep
from topk_platform.cli.consoles import make_console, print_json
from topk_platform.cli.inspecting import DataOption, MlflowOption, StoreOption, check_price, named_place
from topk_platform.cli.studies import find_modules_here, known_studies, load_study, smoke_notice, smoke_study
from topk_platform.errors import UserError
from topk_platform.specs import Study

__all__ = ["app", "main"]

app = typer.Typer(
    name="topk",
    help="Studies of top-K classification losses: run them, look into them, print their tables.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
inspecting.add_to(app)
app.command()(standing.status)
reporting.add_to(app)
asking.add_to(app)
exporting.add_to(app)
upkeep.add_to(app)

StudyName = Annotated[str, typer.Argument(help="A name that `topk list` shows, or package.module:attribute.")]
TrialsOption = Annotated[int | None, typer.Option("--trials", help="Search trials per arm.")]
SeedsOption = Annotated[int | None, typer.Option("--seeds", help="Confirmation seeds per arm.")]
OnlyOption = Annotated[
    list[str] | None, typer.Option("--only", help="A glob over arms, regime/model/loss; may be given again.")
]
DownloadOption = Annotated[
    bool, typer.Option("--download", help="Download into it the datasets that are not there.")
]
SmokeOption = Annotated[
    bool,
    typer.Option(
        "--smoke", help="The study shrunk to seconds, without large data, GPU or weights, under its own name."
    ),
]


def _study(name: str, smoke: bool, address: str | None = None, tell: Console | None = None) -> Study:
    study = load_study(name)
    if not smoke:
        return study
    small = smoke_study(study, here=address is None)
    if tell is not None and (notice := smoke_notice(study, small)):
        tell.print(notice, markup=False, highlight=False)
    return small


@app.command("list")
def list_studies() -> None:
    """List the studies."""
    studies = {name: make() for name, make in known_studies().items()}
    width = max(map(len, studies))
    for name, study in studies.items():
        typer.echo(f"{name:<{width}}  {len(study.arms):>3} arms  {study.size:>5} trials  {study.description}")


@contextmanager
def _interrupts_told() -> Iterator[list[int]]:
    """Tell of an interrupt in one line; SIGTERM, by which SLURM and Kubernetes end a job, is one like Ctrl-C.

    Yields the signals that came.
    """
    came: list[int] = []

    def interrupt(number: int, _frame: object) -> None:
        came.append(number)
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGTERM, interrupt)
    # Here and not in main, for Typer turns an interrupt into its own exit and says nothing.
    try:
        yield came
    except KeyboardInterrupt as error:
        typer.echo("Interrupted; what had ended is kept, and the same command goes on from here.", err=True)
        for note in getattr(error, "__notes__", ()):
            typer.echo(note, err=True)
        raise typer.Exit(128 + (came or [signal.SIGINT])[0]) from None
    finally:
        signal.signal(signal.SIGTERM, before)


@app.command()
def run(
    study: StudyName,
    store: StoreOption = "runs",
    address: Annotated[
        str | None, typer.Option(help="A Ray cluster: host:port or auto.", callback=named_place)
    ] = None,
    trials: TrialsOption = None,
    seeds: SeedsOption = None,
    only: OnlyOption = None,
    workers: Annotated[int | None, typer.Option(help="Trials at once; all cores by default.")] = None,
    mlflow: MlflowOption = None,
    checkpoints: Annotated[
        float,
        typer.Option(help="Seconds between two checkpoints of a trial, from which one cut off goes on."),
    ] = 30.0,
    data: DataOption = None,
    download: DownloadOption = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Run failed trials again, in place of their records.")
    ] = False,
    mixed: Annotated[
        bool,
        typer.Option(
            "--mixed", help="Let machines and versions differ: all results count, the table says so."
        ),
    ] = False,
    max_hours: Annotated[
        float | None, typer.Option("--max-hours", help="Hours that this run may take; then it goes on later.")
    ] = None,
    max_gpu_hours: Annotated[
        float | None, typer.Option("--max-gpu-hours", help="Likewise, hours of all GPUs together.")
    ] = None,
    max_trials: Annotated[
        int | None, typer.Option("--max-trials", help="Trials that may start in this run.")
    ] = None,
    smoke: SmokeOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only what went wrong.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print every event as a line of JSON.")] = False,
) -> None:
    """Run what is missing of a study, then print its table. Running it again is how it is resumed.

    Exit code 1: a trial failed, or an arm ended without a result. 2: bad input. 3: faults of machines left trials
    without a result; the same command tries them again. 4: a --max option is used up; the same command goes on.
    """
    if quiet and json:
        raise UserError("--quiet and --json are two ways to be told of a run: leave one out")
    console = make_console()
    wanted = _study(study, smoke, address, None if quiet or json else console)
    # After the study, whose name may be misspelt, and never for `topk list`.
    from topk_platform.cli.progress import make_view  # noqa: PLC0415
    from topk_platform.cli.summary import exit_code, print_problems, print_summary, summary_data  # noqa: PLC0415
    from topk_platform.running.study import run as run_study  # noqa: PLC0415

    with _interrupts_told() as came, make_view(console, quiet=quiet, json=json) as progress:
        summary = run_study(
            wanted,
            store=store,
            address=address,
            trials=trials,
            seeds=seeds,
            only=only,
            workers=workers,
            mlflow_uri=mlflow,
            checkpoint_seconds=checkpoints,
            progress=progress,
            data=data,
            download=download,
            retry_failed=retry_failed,
            mixed=mixed,
            max_hours=max_hours,
            max_gpu_hours=max_gpu_hours,
            max_trials=max_trials,
        )
    code = 128 + came[0] if summary.interrupted and came else exit_code(summary)
    if json:
        print_json({**summary_data(summary), "exit_code": code}, lines=True)
    elif quiet:
        print_problems(make_console(stderr=True), summary)
    else:
        print_summary(console, summary, store)
    raise typer.Exit(code)


@app.command()
def plan(
    study: StudyName,
    store: StoreOption = "runs",
    trials: TrialsOption = None,
    seeds: SeedsOption = None,
    only: OnlyOption = None,
    data: DataOption = None,
    download: DownloadOption = False,
    price: Annotated[
        float | None,
        typer.Option(
            "--price", help="Of an hour of a GPU, or of a worker on the CPU: tells what the rest costs."
        ),
    ] = None,
    smoke: SmokeOption = False,
) -> None:
    """Show a study's arms, what is done, about how long the rest takes, and how many workers it can feed."""
    check_price(price)
    console = make_console()
    wanted = _study(study, smoke, tell=console)
    from topk_platform.running.planning import plan as plan_study  # noqa: PLC0415 - as above

    found = plan_study(
        wanted, store=store, trials=trials, seeds=seeds, only=only, data=data, download=download
    )
    inspecting.print_plan(console, found, price)


@app.command()
def probe(
    study: StudyName,
    only: OnlyOption = None,
    memory: Annotated[
        float | None,
        typer.Option(
            metavar="GIB", help="Memory of a trial; by default what is free, shared by trials at once."
        ),
    ] = None,
    data: DataOption = None,
    smoke: SmokeOption = False,
) -> None:
    """Find the largest batch of each arm that fits into this machine's memory, by training steps."""
    console = make_console()
    wanted = _study(study, smoke, tell=console)
    from topk_platform.running.probing import probe as probe_study  # noqa: PLC0415 - as above

    with console.status("reading data") as shown:
        found = probe_study(
            wanted, only=only, memory=memory, data=data, tell=lambda arm: shown.update(f"trying {arm.name}")
        )
    raise typer.Exit(inspecting.print_probe(console, found))


def main() -> None:
    """Run the command: exit code 2 and one line for what the user can mend, 130 for an interrupt, 143 for SIGTERM."""
    find_modules_here()
    try:
        app()
    except UserError as error:
        typer.echo(f"topk: {error}", err=True)
        sys.exit(2)
