"""Commands that ask what results say: claims, tuning, what is to be reported, which loss to start with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer
from rich.console import Console

from topk_platform.cli.inspecting import DataOption, StoreOption
from topk_platform.cli.studies import known_studies, load_study, smoke_study
from topk_platform.errors import UserError
from topk_platform.specs import Study

__all__ = ["add_to"]

_Study = Annotated[str, typer.Argument(help="A name that `topk list` shows, or package.module:attribute.")]
_Trials = Annotated[int | None, typer.Option("--trials", help="Search trials per arm.")]
_Seeds = Annotated[int | None, typer.Option("--seeds", help="Confirmation seeds per arm.")]
_Format = Annotated[str, typer.Option("--format", help="rich, md or csv.")]
_Smoke = Annotated[bool, typer.Option("--smoke", help="The study's smoke run.")]
_Only = Annotated[
    list[str] | None, typer.Option("--only", help="A glob over arms, regime/model/loss; may be given again.")
]
_Within = Annotated[float, typer.Option("--within", help="Points below the best that are close enough.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    for command in (claims, tuning, checklist, recommend):
        app.command()(command)


def _named(name: str, smoke: bool) -> Study:
    study = load_study(name)
    return smoke_study(study, here=True) if smoke else study


def _check_format(output: str, *known: str) -> None:
    if output not in known:
        raise UserError(f"--format must be {', '.join(known[:-1])} or {known[-1]}, got {output!r}")


def _shown(output: str, **made: Callable[[], object]) -> None:
    """Print what was asked for: on the terminal as it is, else as text."""
    if output == "rich":
        Console().print(made["rich"]())
    else:
        typer.echo(str(made[output]()), nl=False)


def claims(
    study: _Study,
    store: StoreOption = "runs",
    output: _Format = "rich",
    trials: _Trials = None,
    seeds: _Seeds = None,
) -> None:
    """Decide a study's claims, such as its paper's findings: confirmed, refuted, undecided, or waiting for data."""
    _check_format(output, "rich", "md", "csv")
    wanted = load_study(study)
    if not wanted.claims:
        raise UserError(f"study {wanted.name} has no claims: give it some as Study(claims=...)")
    from topk_platform.reports import claimed, deciding  # noqa: PLC0415 - pyarrow and numpy

    found = deciding.decide(wanted, store=store, trials=trials, seeds=seeds)
    _shown(
        output,
        rich=lambda: claimed.claims_to_rich(found),
        md=lambda: claimed.claims_to_markdown(wanted.name, found),
        csv=lambda: claimed.claims_to_csv(found),
    )


def tuning(
    study: _Study,
    store: StoreOption = "runs",
    output: _Format = "rich",
    within: _Within = 0.5,
    trials: _Trials = None,
    only: _Only = None,
    smoke: _Smoke = False,
) -> None:
    """Show what search trials brought, how many were enough, and which parameters mattered, by validation alone."""
    _check_format(output, "rich", "md", "csv")
    wanted = _named(study, smoke)
    from topk_platform.reports import tuned  # noqa: PLC0415 - as above
    from topk_platform.reports.tuning import check_within  # noqa: PLC0415 - as above
    from topk_platform.reports.tuning import tuning as tuning_of  # noqa: PLC0415 - as above

    part = check_within(within)
    found = tuning_of(wanted, store=store, trials=trials, only=only)
    _shown(
        output,
        rich=lambda: tuned.tuning_to_rich(found, part),
        md=lambda: tuned.tuning_to_markdown(found, part),
        csv=lambda: tuned.tuning_to_csv(found),
    )


def checklist(
    study: _Study,
    store: StoreOption = "runs",
    trials: _Trials = None,
    seeds: _Seeds = None,
    smoke: _Smoke = False,
) -> None:
    """Write what venues ask to be reported of a study, filled in from its ledger, as Markdown."""
    wanted = _named(study, smoke)
    from topk_platform.reports.checklist import checklist as filled_in  # noqa: PLC0415 - as above

    typer.echo(filled_in(wanted, store=store, trials=trials, seeds=seeds).to_markdown(), nl=False)


def recommend(
    classes: Annotated[int, typer.Option("--classes", help="How many classes there are.")],
    images: Annotated[int, typer.Option("--images", help="Training images, of all classes together.")],
    imbalance: Annotated[
        float, typer.Option("--imbalance", help="Images of the largest class over those of the smallest.")
    ] = 1.0,
    noise: Annotated[
        float, typer.Option("--noise", help="The share of wrong training labels, 0 to 1.")
    ] = 0.0,
    k: Annotated[int, typer.Option("--k", help="How many guesses count.")] = 5,
    study: Annotated[
        list[str] | None,
        typer.Option("--study", help="One of your own, package.module:attribute; may be given again."),
    ] = None,
    store: StoreOption = "runs",
    data: DataOption = None,
    output: Annotated[str, typer.Option("--format", help="rich, md or json.")] = "rich",
) -> None:
    """Say which loss to start with, by what the store's studies show near such data, or that it is not known."""
    _check_format(output, "rich", "md", "json")
    wanted = [load_study(name) for name in study or ()]
    from topk_platform.reports import recommendation  # noqa: PLC0415 - pyarrow and numpy
    from topk_platform.running.recommending import recommend as recommend_for  # noqa: PLC0415 - as above

    named = {made.name for made in wanted}
    wanted += [made for make in known_studies().values() if (made := make()).name not in named]
    found = recommend_for(
        wanted, classes=classes, images=images, imbalance=imbalance, noise=noise, k=k, store=store, data=data
    )
    _shown(
        output,
        rich=lambda: recommendation.recommendation_to_rich(found),
        md=lambda: recommendation.recommendation_to_markdown(found),
        json=lambda: recommendation.recommendation_to_json(found),
    )
