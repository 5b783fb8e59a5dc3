"""What all commands have in common: exit codes, errors, help, JSON, and what other packages bring."""

from __future__ import annotations

import importlib.metadata
import inspect
import io
import json
import pkgutil
import re
import signal
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from in_process import topk
from typer.testing import CliRunner

from topk_platform.cli import app
from topk_platform.cli.app import COMMANDS as LISTED
from topk_platform.cli.app import load_command
from topk_platform.cli.consoles import MEANINGS, Exit, escape_unknown_characters, make_console, print_json
from topk_platform.cli.run_command import Course, exit_code, interrupts_reported, summary_data
from topk_platform.cli.studies import known_studies, load_study
from topk_platform.data import data_at, data_folder
from topk_platform.errors import UserError
from topk_platform.records.run_notes import OpenTrial
from topk_platform.results import Table
from topk_platform.running.summary import Outcome, Summary
from topk_platform.running.watching import Event

ROOT = Path(__file__).parents[3]
COMMANDS = {name: load_command(name) for name in LISTED}


@pytest.fixture(autouse=True)
def _in_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


class Tables:
    """What an exit code depends on of a table."""

    def __init__(self, failures: tuple[Any, ...] = (), fruitless: tuple[Any, ...] = ()) -> None:
        self.failures, self.fruitless = failures, fruitless


def a_summary(table: Any = None, **fields: Any) -> Summary:
    result: Table = table or Tables()
    return Summary(**{"table": result, "left": 0, "folder": "f", **fields})


OPEN = Outcome([OpenTrial("abc", "r/mlp/ldam", "process lost: killed", "buy another")])


@pytest.mark.parametrize(
    ("summary", "code"),
    [
        (a_summary(), Exit.DONE),
        (a_summary(Tables(failures=(("abc", "arm", "why"),))), Exit.FAILED),
        (a_summary(Tables(fruitless=("arm",))), Exit.FAILED),
        (a_summary(left=2, outcome=OPEN), Exit.OPEN),
        (a_summary(left=2, outcome=Outcome(partial="max_hours 1")), Exit.PARTIAL),
        (a_summary(left=2, outcome=replace(OPEN, partial="max_hours 1")), Exit.OPEN),
        (a_summary(left=2, outcome=Outcome(interrupted=True)), Exit.INTERRUPTED),
    ],
)
def test_what_became_of_a_run_has_its_code(summary: Summary, code: Exit) -> None:
    assert exit_code(summary) == code == summary_data(summary)["exit_code"]


RUN = "store=st trials=11 seeds=12 only=balanced/* workers=2 data=d download retry_failed networks mixed wait=7.0"
LIMITS = "address=auto accelerator=A100 max_hours=3.0 max_gpu_hours=4.0 max_trials=5"
BUDGET = "store=st trials=11 seeds=12 searches=13 smoke"
ARRIVING = f"""
run digits | cli.run_command.RunOptions | {RUN} {LIMITS} mlflow=none checkpoints=5.0 searches=13 tensorboard=t wandb=w
run digits | cli.run_command.requested_study | store=st address=auto smoke
table digits | cli.showing.read_table | store=st only=balanced/*
table digits | cli.showing.requested_study | {BUDGET}
table letters --claims --searches 5 | cli.showing.decide | store=st
export digits --to out --arm a | serving.export_model | to=o arm=b seed=3 onnx calibrate data=d store=st
export digits --to out --arm a | cli.export.requested_study | {BUDGET}
export digits --to f.json.gz --format findings | reports.findings_export.findings | note=n data=d store=st
"""
"""A command, the function that it calls, and the options whose values are that function's arguments."""


@pytest.mark.parametrize(
    ("command", "function", "option"),
    [
        (command, function, option)
        for command, function, options in (line.split(" | ") for line in ARRIVING.strip().splitlines())
        for option in options.split()
    ],
)
def test_the_value_of_an_option_arrives_and_changes_no_other(
    command: str, function: str, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, _, value = option.partition("=")
    name, _, keyword = name.partition(":")
    signature = inspect.signature(pkgutil.resolve_name(f"topk_platform.{function}"))
    calls: list[dict[str, Any]] = []

    def call(*given: Any, **named: Any) -> None:
        calls.append(dict(signature.bind(*given, **named).arguments))
        raise UserError("this is enough")

    monkeypatch.setattr(f"topk_platform.{function}", call)
    line = f"--{name.replace('_', '-')}"
    for more in ([], [line, value] if value else [line]):
        assert topk(*command.split(), *more)[0] == Exit.BAD_INPUT
    without, result = calls
    changed = {
        n: v
        for n, v in result.items()
        if v != without.get(n) and n not in ("waiting", "progress", "notice_to")
    }
    assert list(changed) == [keyword or name]
    assert str(changed[keyword or name]) in (value or "True", f"['{value}']")


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize(
    ("number", "at_first", "code"),
    [
        ("SIGINT", signal.default_int_handler, Exit.INTERRUPTED),
        ("SIGTERM", signal.default_int_handler, Exit.TERMINATED),
        ("SIGTERM", signal.SIG_IGN, Exit.TERMINATED),
    ],
)
def test_signals_have_their_codes(
    number: str, at_first: Any, code: Exit, capsys: pytest.CaptureFixture[str]
) -> None:
    """SIGTERM ends a run in the background of a script too, where a shell has SIGINT ignored."""
    before = signal.signal(signal.SIGINT, at_first)
    try:
        with pytest.raises(typer.Exit) as caught, interrupts_reported(Course()):
            signal.raise_signal(signal.Signals[number])
    finally:
        signal.signal(signal.SIGINT, before)
    assert caught.value.exit_code == code
    line = "Interrupted before anything began; the same command goes on from here.\n"
    assert capsys.readouterr() == ("", line)


def test_a_program_is_notified_of_an_interrupt_and_of_what_is_left(
    capsys: pytest.CaptureFixture[str],
) -> None:
    course, seen = Course(json=True), list[Event]()
    show = course.followed(lambda _watch, event: seen.append(event))
    course.end(143)
    for kind in ("begun", "started", "ended", "ended"):
        show(SimpleNamespace(progress=SimpleNamespace(left=3)), Event(kind))  # type: ignore[arg-type]
    course.end(130)
    out, err = capsys.readouterr()
    assert [json.loads(line) for line in out.splitlines()] == [
        {"event": "finished", "interrupted": True, "ran": 0, "left": None, "exit_code": 143},
        {"event": "finished", "interrupted": True, "ran": 2, "left": 3, "exit_code": 130},
    ]
    assert err.count("\n") == 2 and len(seen) == 4


def test_bad_input_is_a_line_and_with_debug_a_traceback_too() -> None:
    for arguments in (["--debug", "table", "digit"], ["table", "digit", "--debug"]):
        code, out, err = topk(*arguments)
        assert (code, out) == (Exit.BAD_INPUT, "")
        assert err.startswith("Traceback") and "topk: unknown study 'digit'" in err.splitlines()[-1]
    assert len(topk("table", "digit")[2].splitlines()) == 1


@pytest.mark.parametrize("command", ["table", "run"])
def test_what_the_store_holds_and_nobody_defines_here_is_reported(command: str, tmp_path: Path) -> None:
    (tmp_path / "runs" / "my-study").mkdir(parents=True)
    (tmp_path / "runs" / "my-study" / "ledger.json").write_text("{}")
    code, out, err = topk(command, "my-study")
    assert (code, out) == (Exit.BAD_INPUT, "")
    assert "'my-study'" in err and "FILE.py" in err and len(err.splitlines()) == 1


def test_a_working_folder_that_was_deleted_is_named_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert topk("list") == (2, "", "topk: the working folder has been deleted: change to another one\n")


def test_an_unexpected_error_is_a_line_and_its_traceback_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topk_platform.cli.list_command.known_studies", None)
    code, out, err = topk("list")
    assert (code, out, len(err.splitlines())) == (Exit.UNEXPECTED, "", 1)
    assert "topk: unexpected TypeError: 'NoneType' object is not callable (" in err
    file = Path(err.rpartition(" is in ")[2].strip())
    assert "known_studies()" in file.read_text()
    file.unlink()
    code, _, err = topk("list", "--debug")
    assert code == Exit.UNEXPECTED
    assert "known_studies()" in err and "is in" not in err.splitlines()[-1]
    monkeypatch.setattr("tempfile.tempdir", "/proc")
    code, out, err = topk("list")
    assert (code, out, len(err.splitlines())) == (Exit.UNEXPECTED, "", 1)
    assert "its traceback cannot be kept (" in err and err.endswith("--debug shows it\n")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_characters_that_the_terminal_lacks_are_escaped(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding))
    escape_unknown_characters()
    make_console().print("95 % ≥ 1 …")
    print_json({"name": "é ≥"}, lines=True)
    sys.stdout.flush()
    shown, data = written.getvalue().decode(encoding).splitlines()
    assert shown == r"95 % \u2265 1 \u2026"
    assert json.loads(data) == {"name": "é ≥"}


def test_the_codes_are_reported_in_the_help_and_in_the_documentation() -> None:
    output = " ".join(re.sub(r"[│╭╮╰╯─]", " ", CliRunner().invoke(app, ["--help"]).output).split())
    page = (ROOT / "docs" / "commands.md").read_text()
    assert set(MEANINGS) == set(Exit)
    for code, meaning in MEANINGS.items():
        assert f"{int(code)}: {meaning}" in output
        assert f"| {int(code)} | {meaning} |\n" in page


@pytest.mark.parametrize(("word", "command"), [("show", "table"), ("results", "table"), ("tabel", "table")])
def test_a_word_that_is_no_command_is_answered_with_the_right_one(word: str, command: str) -> None:
    result = CliRunner().invoke(app, [word, "letters"])
    assert result.exit_code == 2 and f"Did you mean '{command}'?" in result.output


@pytest.mark.parametrize("arguments", [(), ("run",)])
def test_the_help_shows_no_type_beside_flags(arguments: tuple[str, ...]) -> None:
    output = CliRunner().invoke(app, [*arguments, "--help"]).output
    assert "--help" in output and "bool" not in output.lower()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_group_and_an_example_that_it_takes(name: str) -> None:
    command = COMMANDS[name]
    assert command.rich_help_panel
    example = command.epilog.removeprefix("Example: ").partition(" > ")[0].replace("'", "").split()
    assert example[:2] == ["topk", name]
    with command.make_context(name, example[2:]):
        pass  # else it has said which option it does not know


class Point:
    """An entry point, as an installed package has it."""

    def __init__(self, name: str, value: str) -> None:
        self.name, self.value = name, value


def test_what_packages_bring_is_listed_and_runs_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    brought = {
        "topk.studies": [Point("birds", "topk_studies:digits")],
        "topk.losses": [Point("brier", "birds_lab:Brier")],
        "topk.regimes": [],
    }
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: brought[group])
    assert load_study("birds") == load_study("digits")
    out = topk("list")[1]
    assert re.search(r"^birds  +30 arms", out, re.MULTILINE)
    assert "loss brier: birds_lab:Brier\n" in out
    brought["topk.studies"] = [Point("digits", "birds_lab:digits")]
    with pytest.raises(ValueError, match="a study named 'digits', and this name is taken"):
        known_studies()


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("losses", r"^smooth_topk_svm  +Smooth top-K SVM"),
        ("networks", r"^mlp  +a perceptron"),
        ("datasets", r"^digits  +\S"),
        ("samplers", r"^TPE  +A tree of Parzen estimators"),
    ],
)
def test_the_names_that_a_study_may_use_are_listed(kind: str, line: str) -> None:
    assert re.search(line, topk("list", kind)[1], re.MULTILINE)
    assert all(json.loads(topk("list", kind, "--json")[1]).values()), "each has a text"
    assert "did you mean 'losses'" in topk("list", "loses")[2]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("topk pl", {"plan", "plot"}),
        ("topk run letters_qui", {"letters_quick"}),
        ("topk run no_such_", set()),
    ],
)
def test_a_shell_completes_commands_studies_and_options(
    line: str, offered: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As bash asks, by environment variables of the shell's script."""
    monkeypatch.setenv("_TOPK_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(line.count(" ")))
    assert set(topk()[1].split()) == offered


@pytest.mark.parametrize(
    "arguments", ["status --store=~/x", "export letters_quick --format csv --store ~/x --to=~/t.csv"]
)
def test_a_home_folder_is_never_a_folder_called_tilde(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str
) -> None:
    """Shells leave it as it is after an equals sign; a folder called ~ has cost people their home folder."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    _, _, err = topk(*arguments.split())
    assert str(tmp_path / "home" / "x") in err
    assert list((tmp_path / "here").iterdir()) == []
    with data_at("~/photos"):
        assert data_folder("birds") == tmp_path / "home" / "photos" / "birds"
