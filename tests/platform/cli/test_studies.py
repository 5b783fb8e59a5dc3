"""A study that is named by its reference: the commands that the platform suggests take the same name."""

from __future__ import annotations

from pathlib import Path

import pytest

from topk_platform import Arm, Loss, Model, Recipe, Regime, Study, UserError
from topk_platform.cli.studies import as_reference, load_study, requested_study
from topk_platform.reports.words import command

LAB = "suggesting_lab"


def made() -> Study:
    arms = [Arm(Regime("r", "digits"), Model("linear"), Loss("cross_entropy"), 2, Recipe(1))]
    return Study("my-study", arms, topk=(1, 2), seeds=2)


@pytest.fixture
def reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / f"{LAB}.py").write_text(Path(__file__).read_text())
    monkeypatch.syspath_prepend(str(tmp_path))
    return f"{LAB}:made"


def test_suggested_commands_name_the_reference(reference: str) -> None:
    study = load_study(reference)
    assert command("run", study, given={}) == f"topk run {reference}"
    smoke = requested_study(reference, smoke=True)
    assert command("plot", smoke, "map", given={}) == f"topk plot {reference} map --smoke"
    assert load_study(reference.partition(":")[0] + ":made").name == "my-study"


def test_a_typo_in_a_reference_is_answered_with_the_studies_of_its_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = "from suggesting_lab import made as _made\nstudy = _made()\ndef photos(): ...\nnumber = 3\n"
    (tmp_path / f"{LAB}.py").write_text(Path(__file__).read_text())
    (tmp_path / "typo_birds.py").write_text(own)
    (tmp_path / "typo_numbers.py").write_text("number = 3\n")
    monkeypatch.syspath_prepend(str(tmp_path))
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
    (tmp_path / f"{LAB}.py").write_text(Path(__file__).read_text())
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
    for elsewhere in ("../birds.py", "/birds.py", "no-such.py"):
        with pytest.raises(UserError, match="must be below this folder"):
            as_reference(elsewhere)


def test_a_study_without_a_reference_is_named_by_its_name() -> None:
    assert command("run", made(), given={}) == "topk run my-study"
    assert command("plot", made().smoke(), "map", given={}) == "topk plot my-study map --smoke"


def test_suggested_commands_have_the_places_that_they_take() -> None:
    given = {"store": "my runs", "data": "photos", "address": "10.0.0.1:6379"}
    more = "--store 'my runs' --data photos --address 10.0.0.1:6379"
    assert command("run", made(), "--searches", "3", given=given) == f"topk run my-study --searches 3 {more}"
    assert command("report", made(), given=given) == "topk report my-study --store 'my runs'"
    assert command("report", made(), given={"store": "runs"}) == "topk report my-study"


def test_the_reference_is_part_of_nothing_that_is_stored(reference: str) -> None:
    named, bare = load_study(reference), made()
    assert named.to_json() == bare.to_json() and LAB not in named.to_json()
    assert [named.arm_id(arm) for arm in named.arms] == [bare.arm_id(arm) for arm in bare.arms]
    assert LAB not in repr(named)
