"""The command that plans a run: what is left of a study, and how long it takes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from topk_platform.cli import options
from topk_platform.cli.consoles import Exit, make_console, print_json, say
from topk_platform.cli.studies import requested_study
from topk_platform.errors import UserError
from topk_platform.protocol import ArmProgress
from topk_platform.records.run_notes import lines_on_data
from topk_platform.reports.words import command, only_words
from topk_platform.running.cluster.machine import fitting
from topk_platform.running.cluster.node_facts import DRIVER, Finding, grouped
from topk_platform.running.cluster.reaching import Patience, host_and_port
from topk_platform.running.plan import Plan
from topk_platform.running.plan import plan as plan_study
from topk_platform.running.preflight.recorded_speeds import GPU, training_images
from topk_platform.running.views import duration
from topk_platform.specs import Study
from topk_platform.specs.checks import plural

__all__ = ["plan", "what_can_be_seen"]

_DIFFERING = 0.16  # the share of test samples that one of two networks gets right and the other wrong
_SEEN = 2.8  # standard errors of a difference that has a chance of 80 % to be marked, two-sided at 5 %
_MANY = 3  # a line names at most so many nodes; for more nodes, it shows their number


def plan(
    study: options.Study,
    store: options.Store = "runs",
    searches: options.Searches = None,
    trials: options.Trials = None,
    seeds: options.Seeds = None,
    only: options.Only = None,
    data: options.Data = None,
    download: options.Download = False,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Number of workers for the estimated time; by default as many as `topk run` would use here."
        ),
    ] = None,
    address: options.Address = None,
    mlflow: options.Mlflow = None,
    smoke: options.Smoke = False,
    json: options.Json = False,
) -> None:
    """Show a study's arms, what is left to run, about how long that takes, and how many workers it can keep busy.

    It also shows each regime's numbers of samples; if nothing is left, the data are not read. Without the study's GPU
    or data, it shows what it knows, with times as recorded on one kind of GPU, and what is missing. For recorded trials
    that no longer count, it says why, such as which component has another version. With --address, it asks every node
    of the cluster on which a trial fits, busy or not, and lists all that would stop the study there, as `topk run`
    would say it, with what to do about it.

    Exit code 1: something is wrong with the cluster.

    Example: topk plan letters_quick --address 10.0.0.1:6379 --store s3://bucket/runs
    """
    if mlflow is not None and address is None:
        raise UserError("--mlflow is for --address, with which MLflow is asked too")
    if address not in (None, "auto"):
        host_and_port(address)
    console = make_console()
    requested = requested_study(
        study, smoke, notice_to=None if json else console, store=store, searches=searches
    )

    planned, findings = None, list[Finding]()
    try:
        if console.is_terminal and not json:
            say("Reading the data, and timing a few steps where no time is known", err=True)
        planned = plan_study(
            requested,
            store=store,
            trials=trials,
            seeds=seeds,
            only=only,
            data=data,
            download=download,
            workers=workers,
        )
    except UserError as error:
        if address is None:
            raise
        findings.append(Finding.of("study", DRIVER, str(error)))  # the cluster is checked as well
    if address is not None:
        from topk_platform.running.cluster.nodes import check_cluster  # noqa: PLC0415 - Ray, seconds of import

        part = requested.only(only) if only else requested
        findings += check_cluster(part, address, store, mlflow, data, Patience(0, partial(say, err=True)))
    if json:
        known = {} if planned is None else _plan_data(planned)
        print_json(known if address is None else {**known, "findings": findings})
    else:
        if planned is not None:
            _print_plan(console, planned, only or (), {"store": store, "data": data or ""})
        if address is not None:
            _print_findings(console, findings)
    raise typer.Exit(Exit.FAILED if findings else Exit.DONE)


def _print_findings(console: Console, findings: Sequence[Finding]) -> None:
    """Print what is wrong; what is the same on several nodes has one line."""
    table = Table(
        "check", "where", "what is wrong, and the remedy", box=None, pad_edge=False, header_style="bold"
    )
    nodes = grouped(findings)
    for item, names in nodes.items():
        where = f"{len(names)} nodes" if len(names) > _MANY else ", ".join(names)
        table.add_row(
            Text(item.check), Text(where), Text(item.finding).append(f"\n{item.remedy}", "bold red")
        )
    if nodes:
        console.print(table)
    things = f"{plural(len(nodes), 'thing')} {'is' if len(nodes) == 1 else 'are'}" if nodes else "Nothing is"
    console.print(f"{things} wrong with the cluster.", highlight=False)


def _plan_data(plan: Plan) -> dict[str, Any]:
    arms = [
        {
            "arm": arm.arm.name,
            "searched": _searched(arm),
            "search_trials": plan.study.search_trials(arm.arm),
            "confirmed": _confirmed(arm),
            "confirmations": plan.study.seeds,
            "left": arm.left,
            "along": arm.along,
            "epochs": arm.arm.recipe.epochs,
            "images": training_images(arm.arm.regime) if plan.lacking else None,
            "trial_seconds": plan.trial_seconds(arm),
            "measured": plan.durations.knows(arm.arm_id),
            "seconds": arm.trainings * plan.durations.of(arm.arm_id),
        }
        for arm in plan.arms
    ]
    return {
        "study": plan.study.name,
        **{name: _total(plan, name) for name in ("left", "along", "search_workers", "confirm_workers")},
        "seconds": plan.seconds(),
        "workers": plan.workers,
        "elapsed": plan.seconds(plan.workers),
        "outdated": plan.outdated,
        "samples": [note.samples for note in plan.data.values()],
        "notes": _notes(plan),
        "lacking": plan.lacking,
        "arms": arms,
    }


def _print_plan(console: Console, plan: Plan, only: Sequence[str], given: Mapping[str, str]) -> None:
    """Print a plan; ``only`` and ``given`` are what the user typed, for suggested commands."""
    run = command("run", plan.study, *only_words(only), given=given)
    console.print(_arms(plan))
    more = _total(plan, "along")
    along = f" and {more} more that are trained too, because ensembles are trained as a whole"
    seconds = f", about {duration(plan.seconds())} of training on one worker at most"
    seconds = "" if plan.left and not plan.seconds() else seconds
    lines = [
        *_lacking(plan),
        *_samples(plan, run),
        *(f"Note: {note}" for note in _notes(plan)),
        f"{plural(plan.left, 'trial')} left{along if more else ''}{seconds}",
        *(f"Trained again: {reason}" for reason in plan.outdated),
    ]
    if plan.left:
        lines += [_expected(plan) if seconds else "", f"At most {_feeds(plan)} can be busy at once"]
    for line in filter(None, lines):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _total(plan: Plan, count: str) -> int:
    """Return a count of :class:`ArmProgress`, by its name, over all arms."""
    return sum(getattr(arm, count) for arm in plan.arms)


def _notes(plan: Plan) -> list[str]:
    return lines_on_data((name, text) for name, data in plan.data.items() for text in data.notes)


def _arms(plan: Plan) -> Table:
    """Return a row for each arm; without the data or the GPU, also what is known of them."""
    study = plan.study
    known = ("epochs", "images") if plan.lacking else ()
    table = Table(
        "arm", "search", "confirm", "left", *known, "s/trial", title=study.name, title_justify="left"
    )
    for arm in plan.arms:
        seconds, guess = plan.trial_seconds(arm), "" if plan.durations.knows(arm.arm_id) else " (guess)"
        done = f"{_searched(arm)}/{study.search_trials(arm.arm)}", f"{_confirmed(arm)}/{study.seeds}"
        images = training_images(arm.arm.regime)
        sizes = (str(arm.arm.recipe.epochs), "?" if images is None else f"{images:,}") if known else ()
        shown = f"{seconds:.2f}{guess}" if seconds or not arm.left else "?"
        table.add_row(arm.arm.name, *done, str(arm.left), *sizes, shown)
    return table


def _lacking(plan: Plan) -> Iterator[str]:
    """Yield what this machine lacks, and where the times come from instead of it."""
    yield from (f"Missing here: {what}" for what in plan.lacking)
    if plan.lacking and plan.seconds():
        yield f"Times without an ended trial are as recorded on one {GPU}"


def _searched(arm: ArmProgress) -> int:
    """Return how many of the requested search trials have ended."""
    return sum(map(arm.counts, arm.searched))


def _confirmed(arm: ArmProgress) -> int:
    """Return how many confirmations of the chosen configurations have ended."""
    return sum(search.ended for search in arm.searches)


def _expected(plan: Plan) -> str:
    """Return the line about the remaining time."""
    return (
        f"About {duration(plan.seconds(plan.workers))} on {_workers(plan.study, plan.workers)}, "
        "besides the start of Ray and its workers, tens of seconds on an idle machine"
    )


def _samples(plan: Plan, run: str) -> Iterator[str]:
    """Yield a line for each set of regimes with the same numbers of samples."""
    if not plan.data and not plan.lacking:
        yield f"The data were not read, because nothing is left to run; `{run}` checks whether they have changed"
    yield from lines_on_data((name, str(data.samples)) for name, data in plan.data.items())
    if plan.data and plan.left:
        least = min((data.samples for data in plan.data.values()), key=lambda samples: samples.test)
        yield f"W{what_can_be_seen(least.test, grouped=bool(least.groups))[1:]}"


def what_can_be_seen(tested: int, *, grouped: bool = False) -> str:
    """Return how small a difference between two losses a study with so many test samples can show, in a sentence.

    Such a difference has a chance of 80 % to be marked at 5 %, if on one sample in six one of two networks is right and
    the other wrong, as is usual, and searches and seeds vary little.

    Args:
        tested: The number of test samples.
        grouped: Whether samples come in groups that are alike, so that they say less than as many single ones.

    Example:
        >>> what_can_be_seen(175)
        'with 175 test samples a difference of about 9 points can be seen; about 1,400 would show 3'
        >>> what_can_be_seen(2000, grouped=True).partition(". ")[2]
        'Samples come in groups, which show less than as many single ones'
    """
    points = math.ceil(100 * _SEEN * math.sqrt(_DIFFERING / tested))
    text = f"with {tested:,} test samples a difference of about {plural(points, 'point')} can be seen"
    text += "; about 1,400 would show 3" if points > 3 else ""
    return f"{text}. Samples come in groups, which show less than as many single ones" if grouped else text


def _feeds(plan: Plan) -> str:
    parts = {"search": _total(plan, "search_workers"), "confirmation": _total(plan, "confirm_workers")}
    return " and ".join(f"{_workers(plan.study, n)} in the {name}" for name, n in parts.items() if n)


def _workers(study: Study, count: int) -> str:
    text = plural(count, "worker")
    gpus = math.ceil(count / fitting(1, study.gpus))
    return text if study.device == "cpu" else f"{text} ({gpus} GPU{'s' if gpus > 1 else ''})"
