"""``topk list``: the studies with names, and the losses and regimes of other packages."""

from __future__ import annotations

import textwrap

import typer

from topk_platform.cli import options
from topk_platform.cli.consoles import make_console, print_json
from topk_platform.cli.studies import findings_alone, known_studies, others

__all__ = ["list_"]


def list_(json: options.Json = False) -> None:
    """List the studies, findings without a study, and the losses and regimes that installed packages register.

    Example: topk list
    """
    studies = {name: make() for name, make in known_studies().items()}
    brought = {"losses": others("losses"), "regimes": others("regimes")}
    if json:
        listed = [
            {"study": name, "arms": len(s.arms), "trials": s.size, "description": s.description}
            for name, s in studies.items()
        ]
        print_json({"studies": listed, "findings_only": findings_alone(), **brought})
        return
    longest, width = max(map(len, studies)), make_console().width
    for name, study in studies.items():
        line = f"{name:<{longest}}  {len(study.arms):>3} arms  {study.size:>5} trials  "
        indent = " " * min(len(line), width // 2)
        typer.echo(textwrap.fill(line + study.description, width, subsequent_indent=indent))
    if alone := findings_alone():
        typer.echo(textwrap.fill(f"findings only: {', '.join(alone)}", width, subsequent_indent="  "))
    for kind, names in (("loss", brought["losses"]), ("regime", brought["regimes"])):
        for name, reference in names.items():
            typer.echo(f"{kind} {name}: {reference}")
