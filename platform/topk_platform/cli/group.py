"""The list of commands. A command's module is imported only when the command is typed.

So these modules import all that they need at their top, and help and completion stay fast.
"""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass
from functools import partial
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

__all__ = ["COMMANDS", "CommandGroup", "Listed", "load_command"]


@dataclass(frozen=True)
class Listed:
    """A command as the list shows it.

    Args:
        panel: The heading under which ``topk --help`` lists it.
        module: The module that holds its function, in this package.
        summary: The first paragraph of its function's docstring.
        example: How to type it.
        function: The function's name; by default that of the command.
    """

    panel: str
    module: str
    summary: str
    example: str
    function: str = ""


_studies, _results, _trials, _elsewhere, _upkeep = (
    partial(Listed, panel) for panel in ("Studies", "Results", "Trials", "Taking results elsewhere", "Upkeep")
)

COMMANDS: dict[str, Listed] = {
    "new": _studies(
        "new.new",
        "Write a study file that runs: two losses, searched and compared, on your own images or arrays.",
        "topk new my_birds --from photos/birds --network resnet18 -k 5",
    ),
    "list": _studies(
        "commands.listing",
        "List the studies, and the losses and regimes that installed packages register.",
        "topk list",
        "list_",
    ),
    "plan": _studies(
        "commands.plan",
        "Show a study's arms, what is left to run, about how long that takes, and how many workers it can keep busy.",
        "topk plan letters_quick --price 0.5",
    ),
    "probe": _studies(
        "commands.plan",
        "Find the largest batch of each arm that fits into this machine's memory, by trying training steps.",
        "topk probe garcin2022_plantnet --memory 40",
    ),
    "run": _studies(
        "run.run",
        "Run what is missing of a study, then print its table. The same command resumes an interrupted study.",
        "topk run letters_quick --only 'noise-0.8/*' --max-hours 2",
    ),
    "status": _studies(
        "commands.status",
        "Show the progress of a store's studies arm by arm, which trials are open, and which process runs each study.",
        "topk status --store s3://bucket/runs --watch",
    ),
    "table": _results(
        "commands.results",
        "Print a study's table from the results in the store; runs nothing.",
        "topk table letters_quick --format latex > table.tex",
    ),
    "plot": _results(
        "commands.results",
        "Plot a study's results from the store into a file.",
        "topk plot letters_map map --to map.pdf",
    ),
    "report": _results(
        "commands.results",
        "Write all results of a study as one HTML page, which needs no other file and no network, or as Markdown.",
        "topk report letters_quick --to letters.html",
    ),
    "claims": _results(
        "commands.conclusions",
        "Decide a study's claims, such as its paper's findings: confirmed, refuted, undecided, or waiting for data.",
        "topk claims ring_modes --json",
    ),
    "cardinality": _results(
        "commands.cardinality",
        "Train networks that choose how many candidates an image gets, on a study's confirmed networks, and test them.",
        "topk cardinality letters_quick --only 'noise-0.8/*'",
    ),
    "tuning": _results(
        "commands.conclusions",
        "Show what the search gained, how many trials were enough, and which parameters mattered, by validation alone.",
        "topk tuning letters_quick --within 1",
    ),
    "checklist": _results(
        "commands.conclusions",
        "Write what venues ask to be reported of a study, filled in from its ledger, as Markdown.",
        "topk checklist letters_quick > checklist.md",
    ),
    "findings": _results(
        "commands.findings",
        "Print the findings of a study from a file or from this package: its table, or a plot.",
        "topk findings letters --plot map --to map.pdf",
    ),
    "recommend": _results(
        "commands.recommend",
        "Recommend a loss to start with, from studies on similar data, or say that it is not known.",
        "topk recommend --classes 5000 --images 300000 --imbalance 100 --noise 0.1 -k 5",
    ),
    "show": _trials(
        "commands.trials",
        "Show one trial: how it ended, its configuration, its epochs, and how to run it alone.",
        "topk show 3f2a",
    ),
    "replay": _trials(
        "commands.trials",
        "Run one recorded trial again, alone in this process, and compare it with its record.",
        "topk replay 3f2a",
    ),
    "ui": _trials(
        "commands.trials",
        "Open MLflow's UI for the runs in a store; only this machine can reach it by default.",
        "topk ui --port 5001",
    ),
    "export": _elsewhere(
        "commands.export",
        "Write an arm's confirmed network for `topk predict`, a study's trials for other tools, or its findings.",
        "topk export letters_quick --arm noise-0.8/mlp/smooth_topk_svm --to winner",
    ),
    "predict": _elsewhere(
        "commands.export",
        "Print the K candidates for each image, with the probability of being among the K best.",
        "topk predict winner photo.png -k 3",
    ),
    "bundle": _elsewhere(
        "commands.evidence",
        "Write a study as one file that can be cited: definition, ledger, ranks, tables, claims, versions.",
        "topk bundle letters_quick --to letters.topk",
    ),
    "verify": _elsewhere(
        "commands.evidence",
        "Compute a bundle's tables and claims again, and train some trials again. Exit code 1: something differs.",
        "topk verify letters.topk --replay 3",
    ),
    "doctor": _upkeep(
        "commands.doctor",
        "Check this machine, or every node of a cluster, for what would keep a study from running.",
        "topk doctor letters_quick --address 10.0.0.1:6379 --store s3://bucket/runs",
    ),
    "sync": _upkeep(
        "commands.upkeep",
        "Bring trackers, by default MLflow, up to date with a study's ledger, later or from another machine.",
        "topk sync letters_quick --mlflow http://127.0.0.1:5000",
    ),
    "adopt": _upkeep(
        "commands.evidence",
        "Train some recorded trials again; if they come out the same, count all trials like them.",
        "topk adopt letters_quick --replay 3",
    ),
    "repair": _upkeep(
        "commands.upkeep",
        "Read every file of a study's records, and repair damaged ones; the next `topk run` trains lost trials again.",
        "topk repair letters_quick",
    ),
}
"""The commands by name, in the order of the help."""


def load_command(name: str) -> Any:
    """Import a command's module and return the command, as a Typer command with all its options."""
    listed = COMMANDS[name]
    module = importlib.import_module(f"topk_platform.cli.{listed.module}")
    alone = typer.Typer(add_completion=False)
    function, example = getattr(module, listed.function or name), f"Example: {listed.example}"
    alone.command(name, help=_unwrapped(function), epilog=example, rich_help_panel=listed.panel)(function)
    return typer.main.get_command(alone)


def _unwrapped(function: Any) -> str:
    """Return a function's docstring without the line breaks inside its paragraphs, which a terminal would keep."""
    paragraphs = (inspect.getdoc(function) or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


class CommandGroup(TyperGroup):
    """The group of the commands. Until a command is typed, it has only the name, panel and summary of each."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, listed in COMMANDS.items():
            self.add_command(TyperCommand(name, help=listed.summary, rich_help_panel=listed.panel))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the command that was typed, with its options."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command if name is None else load_command(name), rest
