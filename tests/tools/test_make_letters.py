"""`tools/make_letters.py` on fonts that come with matplotlib."""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from topk_platform import Regime
from topk_platform.data import Dataset, load

pytest.importorskip("fontTools")
pytest.importorskip("PIL")
matplotlib = pytest.importorskip("matplotlib")

pytestmark = pytest.mark.slow

TOOL = Path(__file__).parents[2] / "tools" / "make_letters.py"
FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
ONE_EACH = ["--train", "2", "--validation", "1", "--test", "1", "--any-licence"]


def make(fonts: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TOOL), str(fonts), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def made(fonts: Path, *arguments: object) -> str:
    done = make(fonts, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def fonts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of six families, one of them twice under two names of files, and a damaged file."""
    folder = tmp_path_factory.mktemp("fonts")
    dejavu = ("DejaVuSans", "DejaVuSans-Bold", "DejaVuSerif", "DejaVuSansMono")
    for name in (*dejavu, "STIXGeneral", "cmr10", "cmtt10"):
        shutil.copy(FONTS / f"{name}.ttf", folder)
    shutil.copy(FONTS / "STIXGeneral.ttf", folder / "again.ttf")
    (folder / "damaged.ttf").write_bytes(b"no font")
    return folder


def test_the_same_fonts_give_the_same_bytes_by_choice_and_by_the_table(fonts: Path, tmp_path: Path) -> None:
    first, second, third = (tmp_path / f"{n}.npz" for n in range(3))
    table, copy = tmp_path / "a.csv", tmp_path / "b.csv"
    said = made(fonts, "--out", first, "--table", table, "--sheet", tmp_path / "s.png", *ONE_EACH)
    made(fonts, "--out", second, *ONE_EACH)
    made(fonts, "--out", third, "--families", table, "--table", copy)
    assert first.read_bytes() == second.read_bytes() == third.read_bytes()
    assert table.read_bytes() == copy.read_bytes()
    assert "6 families have the characters" in said
    rows = list(csv.DictReader(table.open()))
    # DejaVu Sans, Serif and Mono are namesakes and in one split, of which one place each is left to the others.
    splits = {row["split"] for row in rows if row["family"].startswith("DejaVu")}
    assert len(splits) == 1
    assert {row["style"] for row in rows} <= {"Book", "Regular"}


def test_the_platform_reads_other_characters_of_another_size(
    fonts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(fonts, "--out", tmp_path / "five.npz", "--characters", "FLTHX", "--size", 20, *ONE_EACH)
    monkeypatch.setenv("TOPK_DATA", str(tmp_path))
    five = load(Regime("five", "letters", options={"file": "five.npz"}))
    assert isinstance(five, Dataset)
    assert ("".join(five.names or ()), five.shape, five.superclasses) == ("FLTHX", (1, 20, 20), None)
    ell = five.train.tensor[five.train.labels == 1][0, 0]
    # A stem at the left, a bar below, and nothing above at the right.
    assert ell[4:16, :10].sum() > 0 and ell[15:].sum() > 0 and ell[4:12, 12:].sum() == 0


def test_a_report_names_characters_of_one_shape(fonts: Path, tmp_path: Path) -> None:
    made(fonts, "--out", tmp_path / "f.npz", "--shapes", tmp_path / "f.md", "--characters", "OoIl", *ONE_EACH)
    report = (tmp_path / "f.md").read_text()
    assert report.count("\n| top-") == 4
    assert "| O o |" in report and "| I l |" in report


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "f.txt"], "--out must"),
        (["--out", "f.npz", "--size", "27"], "--size must"),
        (["--out", "f.npz", "--characters", "AA"], "--characters must"),
        (["--out", "f.npz", "--test", "0"], "--test must"),
        (["--out", "f.npz", "--characters", "漢字"], "FONTS must"),
        (["--out", "f.npz", "--families", str(TOOL)], "families must"),
    ],
)
def test_bad_arguments_are_one_line(arguments: list[str], message: str, fonts: Path) -> None:
    done = make(fonts, *arguments)
    assert done.returncode == 1
    assert message in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_another_font_under_a_tables_name_is_seen(fonts: Path, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    made(fonts, "--out", tmp_path / "f.npz", "--table", table, *ONE_EACH)
    text = table.read_text()
    table.write_text(text.replace(text.splitlines()[1].rpartition(",")[2], "0" * 16))
    done = make(fonts, "--out", tmp_path / "g.npz", "--families", table)
    assert done.returncode == 1 and "must be in FONTS with the SHA-256 0000000000000000" in done.stderr


def test_a_licence_is_the_packages_or_the_fonts_own(fonts: Path, tmp_path: Path) -> None:
    """Of a Debian package its copyright file counts, by the last paragraph that is for the font."""
    package = tmp_path / "x" / "fonts-mine"
    (package / "usr/share/doc/fonts-mine").mkdir(parents=True)
    (package / "usr/share/doc/fonts-mine/copyright").write_text(
        "Format: 1.0\n\nFiles: *\nLicense: GPL-2+\n\nFiles: src/DejaVuSerif.sfd\n STIX*\nLicense: OFL-1.1\n\n"
        "Files: cm*.ttf\nLicense: MIT\n\nFiles: debian/*\nLicense: MIT\n"
    )
    (package / "CONTROL").write_text("Package: fonts-mine\nVersion: 1.0-2\n")
    for path in fonts.glob("*.ttf"):
        shutil.copy(path, package)
    made(tmp_path / "x", "--out", tmp_path / "f.npz", "--table", tmp_path / "t.csv", *ONE_EACH[:-1])
    rows = list(csv.DictReader((tmp_path / "t.csv").open()))
    assert {row["family"]: row["licence"] for row in rows} == {
        "DejaVu Serif": "OFL-1.1",
        "STIXGeneral": "OFL-1.1",
        "cmr10": "MIT",
        "cmtt10": "MIT",
    }
    assert {row["package"] for row in rows} == {"fonts-mine 1.0-2"}


def test_characters_come_from_a_file_and_the_smallest_form_is_the_same(fonts: Path, tmp_path: Path) -> None:
    text = tmp_path / "five.txt"
    text.write_text("FL\nTHX\n")
    made(fonts, "--out", tmp_path / "f.npz", "--characters", "FLTHX", *ONE_EACH)
    made(fonts, "--out", tmp_path / "g.npz", "--characters-file", text, "--smallest", *ONE_EACH)
    with np.load(tmp_path / "f.npz") as usual, np.load(tmp_path / "g.npz", allow_pickle=False) as smallest:
        assert set(usual) == set(smallest)
        for name in usual:
            assert np.array_equal(usual[name], smallest[name])
