"""``topk recommend``: which loss to start with."""

from __future__ import annotations

from typing import Annotated

import typer

from topk_platform.cli import options
from topk_platform.cli.consoles import print_json, show
from topk_platform.cli.options import check_format, under
from topk_platform.cli.studies import known_studies, load_study, shipped_findings
from topk_platform.errors import UserError
from topk_platform.evidence.recommending import recommend as recommend_for
from topk_platform.reports import recommendation_text
from topk_platform.results.comparisons import Situation
from topk_platform.results.findings import Findings

__all__ = ["recommend"]


def recommend(
    classes: Annotated[int, typer.Option("--classes", help="How many classes there are.")],
    images: Annotated[int, typer.Option("--images", help="Training images, of all classes together.")],
    imbalance: Annotated[
        float, typer.Option("--imbalance", help="Images of the largest class over those of the smallest.")
    ] = 1.0,
    noise: Annotated[
        float, typer.Option("--noise", help="The share of wrong training labels, 0 to 1.")
    ] = 0.0,
    k: Annotated[int, typer.Option("-k", "--k", help="K, the number of guesses shown.")] = 5,
    study: Annotated[
        list[str] | None,
        typer.Option(
            "--study",
            help="A study of your own in the store, package.module:attribute; may be given several times.",
        ),
    ] = None,
    evidence: Annotated[
        list[str] | None,
        typer.Option(
            "--evidence", help="A file of findings besides those shipped; may be given several times."
        ),
    ] = None,
    shipped: Annotated[
        bool, typer.Option("--shipped/--not-shipped", help="Whether the shipped findings count as evidence.")
    ] = True,
    store: options.Store = "runs",
    data: options.Data = None,
    output: Annotated[str, under("Output")("--format", help="rich or md.")] = "rich",
    json: options.Json = False,
) -> None:
    """Recommend a loss to start with, from studies on similar data, or say that it is not known.

    The evidence is the store's studies and the findings in this package.

    Example: topk recommend --classes 5000 --images 300000 --imbalance 100 --noise 0.1 -k 5
    """
    check_format(output, "rich", "md", json=json)
    _check(classes, images, imbalance, noise, k)  # before seconds of reading findings
    studies = [load_study(name) for name in study or ()]

    named = {known.name for known in studies}
    studies += [known for make in known_studies().values() if (known := make()).name not in named]
    recommended = recommend_for(
        studies,
        classes=classes,
        images=images,
        imbalance=imbalance,
        noise=noise,
        k=k,
        store=store,
        data=data,
        evidence=[*(shipped_findings() if shipped else ()), *map(Findings.read, evidence or ())],
    )
    if json:
        print_json(recommendation_text.recommendation_data(recommended))
    elif output == "md":
        show(output, recommendation_text.recommendation_to_markdown(recommended))
    else:
        show(output, recommendation_text.recommendation_to_rich(recommended))


def _check(classes: int, images: int, imbalance: float, noise: float, k: int) -> None:
    """Raise ``UserError`` that names the option whose number is out of range."""
    try:
        Situation(classes, images, imbalance, noise, k)
    except UserError as error:
        name, _, rule = str(error).partition(" ")
        raise UserError(f"{'-k' if name == 'k' else f'--{name}'} {rule}") from error
