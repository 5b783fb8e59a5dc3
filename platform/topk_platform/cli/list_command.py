"""``topk list``: the studies with names, and the names that a study may use."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from typing import Annotated

import typer

from topk_platform.cli import options
from topk_platform.cli.consoles import make_console, print_json
from topk_platform.cli.studies import findings_alone, known_studies, others
from topk_platform.errors import unknown_name
from topk_platform.loss_catalogue import LOSS_CATALOGUE
from topk_platform.references import import_reference
from topk_platform.specs.search_rules import SAMPLERS

__all__ = ["list_"]

_KINDS = ("losses", "networks", "datasets", "samplers")
_TABLES = {
    "networks": "topk_platform.models:MODELS",
    "datasets": "topk_platform.data:DATASETS",
}  # both load torch


def list_(
    kind: Annotated[
        str | None, typer.Argument(help="losses, networks, datasets or samplers, in place of the studies.")
    ] = None,
    json: options.Json = False,
) -> None:
    """List the studies, and what installed packages register; or the losses, networks, datasets or samplers by name.

    Example: topk list losses
    """
    if kind is None:
        _list_studies(json)
        return
    if kind not in _KINDS:
        raise unknown_name("kind of names", kind, _KINDS)
    names = _names(kind)
    if json:
        print_json(names)
    else:
        _print_lines({f"{name:<{max(map(len, names))}}  ": text for name, text in names.items()})


def _names(kind: str) -> dict[str, str]:
    """Return the names of a kind, each with what it is: a loss's title, or the first sentence of a docstring."""
    if kind == "losses":
        return {name: entry.title for name, entry in LOSS_CATALOGUE.items()} | others("losses")
    named = {sampler.__name__: sampler for sampler in SAMPLERS}
    if kind in _TABLES:
        named = import_reference(_TABLES[kind])
    texts = {name: " ".join((function.__doc__ or "").split()) for name, function in named.items()}
    return {
        name: re.split(r"(?<! al)\.(?: |$)", text, maxsplit=1)[0].removeprefix("Return ")
        for name, text in texts.items()
    }


def _list_studies(json: bool) -> None:
    studies = {name: make() for name, make in known_studies().items()}
    brought = {"losses": others("losses"), "regimes": others("regimes")}
    if json:
        listed = [
            {"study": name, "arms": len(s.arms), "trials": s.size, "description": s.description}
            for name, s in studies.items()
        ]
        print_json({"studies": listed, "findings_only": findings_alone(), **brought})
        return
    longest = max(map(len, studies))
    _print_lines(
        {
            f"{name:<{longest}}  {len(study.arms):>3} arms  {study.size:>5} trials  ": study.description
            for name, study in studies.items()
        }
    )
    if alone := findings_alone():
        typer.echo(
            textwrap.fill(f"findings only: {', '.join(alone)}", make_console().width, subsequent_indent="  ")
        )
    for kind, names in (("loss", brought["losses"]), ("regime", brought["regimes"])):
        for name, reference in names.items():
            typer.echo(f"{kind} {name}: {reference}")


def _print_lines(lines: Mapping[str, str]) -> None:
    """Print texts behind their names; the further lines of a long text begin below its first one."""
    width = make_console().width
    for name, text in lines.items():
        indent = " " * min(len(name), width // 2)
        typer.echo(textwrap.fill(name + text, width, subsequent_indent=indent))
