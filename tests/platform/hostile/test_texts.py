"""Texts of data on a terminal, and passwords in addresses: neither reaches what is printed."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import pytest
from forks import Commands
from rich.table import Table
from rich.text import Text

from topk_platform.terminal import PlainConsole

STEERING = "oak\x1b[2J\x9b31m\x07\u202e"


def test_a_console_keeps_its_own_colours_and_none_that_a_text_brings() -> None:
    table = Table("class", title=STEERING)
    table.add_row(STEERING)
    table.add_row(Text(STEERING, "red"))
    shown = PlainConsole(file=io.StringIO(), force_terminal=True, color_system="standard", width=100)
    with shown.capture() as written:
        shown.print(table, "[bold]bold[/]", STEERING)
    out = written.get()
    assert "\x1b[1mbold" in out and "\x1b[31m" in out
    assert out.count(r"oak\x1b") == 4 and r" oak\x1b[2J\x9b31m\x07\u202e " in out
    assert not {"\x1b[2J", "\x9b", "\x07", "\u202e"} & {
        out[i : i + n] for n in (1, 4) for i in range(len(out))
    }


@pytest.mark.parametrize("output", ["text", "csv", "json"])
def test_names_of_classes(output: str, good: Path, topk: Commands) -> None:
    shutil.rmtree(good / "named", ignore_errors=True)
    shutil.copytree(good / "good", good / "named")
    config = json.loads((good / "named" / "config.json").read_text())
    config["inputs"]["names"] = [f"{STEERING}\n{number}" for number in range(10)]
    (good / "named" / "config.json").write_text(json.dumps(config))
    ended = topk.run("predict", "named", "x.npy", *(["--json"] if output == "json" else ["--format", output]))
    assert ended.code == 0, ended
    assert not set(STEERING[3:]) & set("\x1b\x9b\x07\u202e") & set(ended.out)
    if output == "json":
        names = [one["name"] for image in json.loads(ended.out) for one in image["candidates"]]
        assert set(names) <= set(config["inputs"]["names"])  # a program gets what is there
    if output == "text":
        assert len(ended.out.splitlines()) == 5 and r"oak\x1b[2J\x9b31m\x07\u202e\x0a" in ended.out


@pytest.mark.parametrize(
    "uri",
    [
        *("s3://key:pla/nted@bucket/runs", "https://me:planted@host/x"),
        "s3://bucket?endpoint=http://me:pla/nted@127.0.0.1:9",
    ],
)
def test_no_password_of_a_store_is_printed_with_debug_either(uri: str, topk: Commands) -> None:
    for more in ([], ["--debug"]):
        ended = topk.run("status", "--store", uri, *more)
        assert ended.code == 2 and "planted" not in ended.err and "nted" not in ended.err, ended
        assert ended.err.startswith("Traceback" if more else "topk: store"), ended


def test_an_unreachable_mlflow_is_reported_without_its_password(good: Path, topk: Commands) -> None:
    uri = "http://me:pla/nted@127.0.0.1:9"
    ended = topk.run(
        "sync", "evident", "--store", "runs", "--mlflow", uri, "--debug", MLFLOW_HTTP_REQUEST_MAX_RETRIES="0"
    )
    assert ended.code != 0 and "nted" not in ended.out + ended.err, ended
