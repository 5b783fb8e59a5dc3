"""Commands about what a study's results say: its claims, its tuning, and the checklist for a paper."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated

import typer

from topk_platform.cli.consoles import make_console, print_json, print_rows, say
from topk_platform.cli.options import (
    JsonOption,
    OnlyOption,
    SearchesOption,
    SeedsOption,
    SmokeOption,
    StoreOption,
    StudyArgument,
    TableFormatOption,
    TrialsOption,
    check_format,
)
from topk_platform.cli.studies import wanted_study
from topk_platform.errors import UserError

__all__ = ["checklist", "claims", "tuning"]

_Within = Annotated[
    float, typer.Option("--within", help="How many points below the best count as close enough.")
]


def _shown(
    output: str, json: bool, rows: Callable[[], Iterable[Mapping[str, object]]], **made: Callable[[], object]
) -> None:
    """Print what was asked for: on the terminal as it is, else as text."""
    if json:
        print_rows(rows())
    elif output == "rich":
        make_console().print(made["rich"]())
    else:
        say(str(made[output]()), nl=False)


def claims(
    study: StudyArgument,
    store: StoreOption = "runs",
    output: TableFormatOption = "rich",
    searches: SearchesOption = None,
    trials: TrialsOption = None,
    seeds: SeedsOption = None,
    smoke: SmokeOption = False,
    json: JsonOption = False,
) -> None:
    """Decide a study's claims, such as its paper's findings: confirmed, refuted, undecided, or waiting for data."""
    check_format(output, "rich", "md", "csv", json=json)
    wanted = wanted_study(study, smoke, store=store, searches=searches)
    if not wanted.claims:
        why = (
            "a smoke run carries none, as its numbers say nothing of them"
            if smoke
            else "give it some, claims=..."
        )
        raise UserError(f"study {wanted.name} has no claims: {why}")
    from topk_platform.reports import decisions_text  # noqa: PLC0415 - pyarrow and numpy
    from topk_platform.results import decisions as deciding  # noqa: PLC0415 - pyarrow and numpy

    found = deciding.decide(wanted, store=store, trials=trials, seeds=seeds)
    _shown(
        output,
        json,
        rich=lambda: decisions_text.claims_to_rich(found),
        md=lambda: decisions_text.claims_to_markdown(wanted.name, found),
        csv=lambda: decisions_text.claims_to_csv(found),
        rows=lambda: decisions_text.claims_to_rows(found),
    )


def tuning(
    study: StudyArgument,
    store: StoreOption = "runs",
    output: TableFormatOption = "rich",
    within: _Within = 0.5,
    searches: SearchesOption = None,
    trials: TrialsOption = None,
    only: OnlyOption = None,
    smoke: SmokeOption = False,
    json: JsonOption = False,
) -> None:
    """Show what the search gained, how many trials were enough, and which parameters mattered, by validation alone."""
    check_format(output, "rich", "md", "csv", json=json)
    wanted = wanted_study(study, smoke, store=store, searches=searches)
    from topk_platform.reports import tuning_text  # noqa: PLC0415 - as above
    from topk_platform.results.tuning import check_within  # noqa: PLC0415 - as above
    from topk_platform.results.tuning import tuning as tuning_of  # noqa: PLC0415 - as above

    part = check_within(within)
    found = tuning_of(wanted, store=store, trials=trials, only=only)
    _shown(
        output,
        json,
        rich=lambda: tuning_text.tuning_to_rich(found, part),
        md=lambda: tuning_text.tuning_to_markdown(found, part),
        csv=lambda: tuning_text.tuning_to_csv(found),
        rows=lambda: tuning_text.tuning_to_rows(found),
    )


def checklist(
    study: StudyArgument,
    store: StoreOption = "runs",
    searches: SearchesOption = None,
    trials: TrialsOption = None,
    seeds: SeedsOption = None,
    smoke: SmokeOption = False,
    json: JsonOption = False,
) -> None:
    """Write what venues ask to be reported of a study, filled in from its ledger, as Markdown."""
    wanted = wanted_study(study, smoke, store=store, searches=searches)
    from topk_platform.reports.checklist import checklist as filled_in  # noqa: PLC0415 - as above

    found = filled_in(wanted, store=store, trials=trials, seeds=seeds)
    if json:
        print_json(found)
    else:
        say(found.to_markdown(), nl=False)
