"""Studies by their references, and the commands that the platform suggests: the command line takes each as printed."""

from __future__ import annotations

import ast
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from in_process import offer
from made_studies import searched, small_study

import topk_platform
from topk_platform import Study, UserError
from topk_platform.cli.app import COMMANDS, load_command
from topk_platform.cli.studies import as_reference, load_study, requested_study
from topk_platform.reports.words import command, more_searches

LAB, REFERENCE = "suggesting_lab", "suggesting_lab:made"
BUDGET = ("searches", "trials", "seeds")
PLACES = {"store": "my runs", "data": "photos"}


def made() -> Study:
    return small_study(name="my-study", models=["linear"], k=2, seeds=2)


@pytest.fixture(autouse=True)
def _with_a_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, LAB, made=made)


def test_suggested_commands_name_the_reference() -> None:
    study = load_study(REFERENCE)
    assert command("run", study, given={}) == f"topk run {REFERENCE}"
    smoke = requested_study(REFERENCE, smoke=True)
    assert command("plot", smoke, "topk", given={}) == f"topk plot {REFERENCE} topk --smoke"
    assert command("plot", made().smoke(), "topk", given={}) == "topk plot my-study topk --smoke"


def test_a_typo_in_a_reference_is_answered_with_the_studies_of_its_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def photos() -> None: ...

    photos.__module__ = "typo_birds"
    offer(monkeypatch, "typo_birds", study=made(), photos=photos, number=3)
    offer(monkeypatch, "typo_numbers", number=3)
    said = r"^unknown study: module 'typo_birds' has no 'studdy': did you mean 'study'\? \(known: photos, study\)$"
    with pytest.raises(UserError, match=said):
        load_study("typo_birds:studdy")
    with pytest.raises(
        UserError, match=r"^unknown attribute: module 'typo_numbers' has no 'study' \(known: number\)$"
    ):
        load_study("typo_numbers:study")
    with pytest.raises(UserError, match="there is no module 'typo_bird' on the path"):
        load_study("typo_bird:study")


def test_a_file_stands_for_the_only_study_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "flock").mkdir()
    source = f"from {LAB} import made\nstudy = made()\n"
    (tmp_path / "one_bird.py").write_text(source)
    (tmp_path / "flock" / "two_birds.py").write_text(f"{source}other = made()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name in ("one_bird.py", "one_bird.py:study", "one_bird"):
        assert load_study(as_reference(name)).reference == "one_bird:study"
    assert as_reference("flock/two_birds.py:other") == "flock.two_birds:other"
    with pytest.raises(
        UserError, match=r"has 2 studies \(study, other\): name one of it as flock/two_birds.py:NAME"
    ):
        as_reference("flock/two_birds.py")
    for outside in ("../birds.py", "/birds.py", "no-such.py"):
        with pytest.raises(UserError, match="must be below this folder"):
            as_reference(outside)


def test_suggested_commands_have_the_places_that_they_take() -> None:
    given = {"store": "my runs", "data": "photos", "address": "10.0.0.1:6379"}
    more = "--store 'my runs' --data photos --address 10.0.0.1:6379"
    assert command("run", made(), "--searches", "3", given=given) == f"topk run my-study --searches 3 {more}"
    assert command("report", made(), given=given) == "topk report my-study --store 'my runs'"
    assert command("report", made(), given={"store": "runs"}) == "topk report my-study"


def test_neither_the_reference_nor_the_changed_budget_is_stored() -> None:
    bare = made()
    for study in (load_study(REFERENCE), bare.with_budget(seeds=2)):
        assert study == bare and study.to_json() == bare.to_json() and repr(study) == repr(bare)
        assert list(map(study.arm_id, study.arms)) == list(map(bare.arm_id, bare.arms))


def a_study() -> Study:
    return small_study(searched(), name="mine", trials=4, seeds=2)


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
                rest = [part for part in node.args[2:] if not isinstance(part, ast.Starred)]
                texts = (part.value if isinstance(part, ast.Constant) else "topk" for part in rest)
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
