"""``topk list``: the studies that are known by name, and what other packages bring."""

from __future__ import annotations

import typer

from topk_platform.cli.consoles import print_json
from topk_platform.cli.options import JsonOption
from topk_platform.cli.studies import known_studies, others

__all__ = ["list_"]


def list_(json: JsonOption = False) -> None:
    """List the studies, and the losses and regimes that installed packages bring."""
    studies = {name: make() for name, make in known_studies().items()}
    brought = {"losses": others("losses"), "regimes": others("regimes")}
    if json:
        told = [
            {"study": name, "arms": len(s.arms), "trials": s.size, "description": s.description}
            for name, s in studies.items()
        ]
        print_json({"studies": told, **brought})
        return
    width = max(map(len, studies))
    for name, study in studies.items():
        typer.echo(f"{name:<{width}}  {len(study.arms):>3} arms  {study.size:>5} trials  {study.description}")
    for kind, found in (("loss", brought["losses"]), ("regime", brought["regimes"])):
        for name, reference in found.items():
            typer.echo(f"{kind} {name}: {reference}")
