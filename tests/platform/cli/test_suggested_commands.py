"""Suggested commands: the command line takes each as it is printed, and it speaks of the study that was shown."""

from __future__ import annotations

import ast
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

import topk_platform
from topk_platform import Arm, Float, Loss, Model, Recipe, Regime, Study
from topk_platform.cli.group import COMMANDS, load_command
from topk_platform.reports.words import command, more_searches

BUDGET = ("searches", "trials", "seeds")
PLACES = {"store": "my runs", "data": "photos"}


def a_study() -> Study:
    loss = Loss("cross_entropy", {"learning_rate": Float(0.01, 1)}, {"learning_rate": 0.1})
    arms = [Arm(Regime("r", "digits"), Model("linear"), loss, 2, Recipe(1))]
    return Study("mine", arms, topk=(1, 2), trials=4, seeds=2)


def options_of(name: str) -> set[str]:
    return {option for parameter in load_command(name).params for option in parameter.opts}


def parsed(line: str) -> dict[str, object]:
    _, name, *arguments = shlex.split(line)
    context = load_command(name).make_context(name, arguments)
    return dict(context.params)


def suggestions() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the command and the arguments of each call of ``command``; a plot stands for what varies."""
    for file in sorted(Path(topk_platform.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if (
                isinstance(node, ast.Call)
                and getattr(node.func, "attr", getattr(node.func, "id", "")) == "command"
                and node.args
                and isinstance(node.args[0], ast.Constant)
            ):
                rest = [one for one in node.args[2:] if not isinstance(one, ast.Starred)]
                texts = (one.value if isinstance(one, ast.Constant) else "map" for one in rest)
                yield node.args[0].value, tuple(texts)


def test_every_suggested_command_is_taken_as_it_is_printed() -> None:
    suggested = set(suggestions())
    assert {name for name, _ in suggested} >= {"run", "plot", "table", "export", "report", "sync"}
    changed = a_study().with_budget(trials=6, seeds=4, searches=2)
    for name, arguments in suggested:
        taken = parsed(command(name, changed, *arguments, given=PLACES))
        assert taken["study"] == "mine" and taken["store"] == "my runs"
        budget = {"searches": 2, "trials": 6, "seeds": 4}
        assert {option: taken[option] for option in budget if option in taken}.items() <= budget.items()


@pytest.mark.parametrize("name", [name for name in COMMANDS if "--searches" in options_of(name)])
def test_a_suggested_command_has_the_budget_that_the_user_changed(name: str) -> None:
    """A command that takes one of the three options has it, and none that it does not take."""
    line = command(name, a_study().with_budget(trials=6, seeds=4, searches=2), given={})
    for option, number in zip(BUDGET, (2, 6, 4), strict=True):
        assert (f"--{option} {number}" in line) == (f"--{option}" in options_of(name))
    assert command(name, a_study().with_budget(seeds=4), given={}).count("--") <= 1
    assert command(name, a_study(), given={}) == f"topk {name} mine"


def test_more_searches_keep_the_budget_of_each_search() -> None:
    """Of 6 trials and 4 seeds in one search, three searches have 18 and 12: both are totals over the searches."""
    assert more_searches(a_study(), given={}) == "topk run mine --searches 3"
    changed = a_study().with_budget(trials=6, seeds=4)
    assert more_searches(changed, given={}) == "topk run mine --searches 3 --trials 18 --seeds 12"
    assert more_searches(a_study().with_budget(searches=5), given={}) == "topk run mine --searches 5"


def test_the_changed_budget_is_part_of_nothing_that_is_stored() -> None:
    changed, defined = a_study().with_budget(trials=4, seeds=2), a_study()
    assert changed == defined and changed.to_json() == defined.to_json()
    assert changed.changed == ("trials", "seeds") and defined.changed == ()
    assert "changed" not in repr(changed)
