"""Commands for conclusions from a study's results: its claims and its tuning."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated

import typer

from topk_platform.cli import options
from topk_platform.cli.consoles import print_rows, show
from topk_platform.cli.options import check_format
from topk_platform.cli.studies import requested_study
from topk_platform.errors import UserError
from topk_platform.reports import decisions_text, tuning_text
from topk_platform.results.decisions import Decision, decide
from topk_platform.results.tuning import check_within
from topk_platform.results.tuning import tuning as tuning_of

__all__ = ["CLAIM_FORMATS", "claims", "show_claims", "tuning"]

CLAIM_FORMATS = ("rich", "md", "csv")
"""The formats of decided claims."""

_Within = Annotated[
    float, typer.Option("--within", help="How many points below the best still count as good enough.")
]


def _shown(
    output: str,
    json: bool,
    rows: Callable[[], Iterable[Mapping[str, object]]],
    **formats: Callable[[], object],
) -> None:
    """Print the rows as JSON, or the result of the requested format's function."""
    if json:
        print_rows(rows())
    else:
        show(output, formats[output]())


def claims(
    study: options.Study,
    store: options.Store = "runs",
    output: options.TableFormat = "rich",
    searches: options.Searches = None,
    trials: options.Trials = None,
    seeds: options.Seeds = None,
    smoke: options.Smoke = False,
    json: options.Json = False,
) -> None:
    """Decide a study's claims, such as its paper's findings: confirmed, refuted, undecided, or waiting for data.

    Example: topk claims ring_modes --json
    """
    check_format(output, *CLAIM_FORMATS, json=json)
    requested = requested_study(study, smoke, store=store, searches=searches)
    if not requested.claims:
        why = (
            "a smoke run has none, because its numbers say nothing about them"
            if smoke
            else "define them, Study(claims=...)"
        )
        raise UserError(f"study {requested.name} has no claims: {why}")
    decisions = decide(requested, store=store, trials=trials, seeds=seeds)
    show_claims(requested.name, decisions, output, json=json)


def show_claims(name: str, decisions: Sequence[Decision], output: str, *, json: bool) -> None:
    """Print a study's decided claims in a format, or as JSON."""
    _shown(
        output,
        json,
        rich=lambda: decisions_text.claims_to_rich(decisions),
        md=lambda: decisions_text.claims_to_markdown(name, decisions),
        csv=lambda: decisions_text.claims_to_csv(decisions),
        rows=lambda: decisions_text.claims_to_rows(decisions),
    )


def tuning(
    study: options.Study,
    store: options.Store = "runs",
    output: options.TableFormat = "rich",
    within: _Within = 0.5,
    searches: options.Searches = None,
    trials: options.Trials = None,
    only: options.Only = None,
    smoke: options.Smoke = False,
    json: options.Json = False,
) -> None:
    """Show what the search gained, how many trials were enough, and which parameters mattered, by validation alone.

    Example: topk tuning letters_quick --within 1
    """
    check_format(output, "rich", "md", "csv", json=json)
    requested = requested_study(study, smoke, store=store, searches=searches)

    part = check_within(within)
    tuned_arms = tuning_of(requested, store=store, trials=trials, only=only)
    _shown(
        output,
        json,
        rich=lambda: tuning_text.tuning_to_rich(tuned_arms, part),
        md=lambda: tuning_text.tuning_to_markdown(tuned_arms, part),
        csv=lambda: tuning_text.tuning_to_csv(tuned_arms),
        rows=lambda: tuning_text.tuning_to_rows(tuned_arms),
    )
