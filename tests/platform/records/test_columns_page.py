"""docs/columns.md has every column of the files that a run leaves, and no other."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from made_studies import searched, small_study
from trained_studies import train_study

from topk_platform import Study
from topk_platform.records.ledger import Ledger
from topk_platform.records.per_image import read_all_ranks
from topk_platform.records.snapshot import write_snapshot
from topk_platform.records.storage.store import Store
from topk_platform.reports.claims_and_classes import classes_to_files
from topk_platform.reports.exports import trials_csv
from topk_platform.reports.study_table import table
from topk_platform.reports.table_data import to_files
from topk_platform.results.by_class import class_results

PAGE = (Path(__file__).parents[3] / "docs" / "columns.md").read_text()
PREFIXES = {
    "param": "NAME",
    "own": "NAME",
    "validation": "METRIC",
    "test": "METRIC",
}  # with a column for each


def documented(section: str) -> list[str]:
    """The columns of the table below a heading that begins with a file's name."""
    (text,) = re.findall(
        rf"^## `{re.escape(section)}`.*?\n(.*?)(?=^## |\Z)", PAGE, flags=re.DOTALL | re.MULTILINE
    )
    return re.findall(r"^\| `([\w.]+)` \|", text, flags=re.MULTILINE)


def folded(columns: list[str]) -> list[str]:
    """Columns with those of one metric or parameter each as one: ``validation.METRIC``."""
    parts = [(name, name.partition(".")) for name in columns]
    names = [
        f"{prefix}.{PREFIXES[prefix]}" if dot and prefix in PREFIXES else name
        for name, (prefix, dot, _) in parts
    ]
    return list(dict.fromkeys(names))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, Path]:
    """A study of one arm, searched, with a published number, and the folder of its results."""
    store = tmp_path_factory.mktemp("runs")
    study = small_study(searched(), regimes=["digits"], models=["linear"], k=2, trials=2, seeds=2)
    train_study(study, store, lambda record: replace(record, own='{"m:f": {"values": {"f": 1.0}}}'))
    ledger = Ledger.open(Store.open(store), "s")
    write_snapshot(ledger, {row["key"] for row in ledger.rows()})
    return study, store


def test_the_page_has_the_columns_of_all_files(run: tuple[Study, Path]) -> None:
    study, store = run
    folder, shown = Store.open(store).at("s"), table(study, store=store)
    classes = class_results(shown, folder, partial(read_all_ranks, folder))
    files = {**to_files(shown), **classes_to_files(shown, classes)}
    for kind in ("tables", "ranks", "guesses"):
        for path in sorted((store / "s" / kind).rglob("*.parquet")):
            files[path.name if kind == "tables" else f"{kind}/KEY.parquet"] = path.read_bytes()
    columns = {name: pq.read_schema(io.BytesIO(files[name])).names for name in files if "parquet" in name}
    for name in ("trials.parquet", "epochs.parquet", "table.parquet", "classes.parquet"):
        assert documented(name) == folded(columns[name])
    assert documented("seeds.parquet") == [*columns["seeds.parquet"][:5], "METRIC"]
    assert set(columns["seeds.parquet"][5:]) == set(study.tabled)
    assert documented("ranks/KEY.parquet") == [*columns["ranks/KEY.parquet"], "cluster"]
    assert documented("guesses/KEY.parquet") == ["guessN"]
    assert columns["guesses/KEY.parquet"] == ["guess1", "guess2"]


def test_the_queries_run(
    run: tuple[Study, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """On a study of K = 2 in place of 3."""
    study, store = run
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "digits").symlink_to(store / "s")
    for name, content in to_files(table(study, store=store)).items():
        (store / "s" / "tables" / name).write_bytes(content)
    queries = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    for query in queries:
        exec(query.replace("top3", "top2"), {})  # noqa: S102 - our own page
        assert "cross_entropy" in capsys.readouterr().out
    assert len(queries) == 3


def test_the_page_has_the_columns_of_an_export(run: tuple[Study, Path]) -> None:
    study, store = run
    columns = folded(trials_csv(study, store=store)[0].splitlines()[0].split(","))
    section = PAGE[PAGE.index("## `topk export") : PAGE.index("## `ranks/")]
    own = documented("topk export --format csv")
    assert own == ["metric", "split", "value"] and set(columns) <= {*own, *documented("trials.parquet")}
    assert set(re.findall(r"`([\w.]+)`", section)) >= set(columns)
