"""Secrets that are planted in the environment and in addresses are looked for in all that a study leaves behind."""

from __future__ import annotations

import io
import os
import secrets
import sqlite3
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from labs import MlflowServer

from topk_platform.records.storage.store import Store

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc"),
]

NAMES = (
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "MLFLOW_TRACKING_PASSWORD",
    "RAY_AUTH_TOKEN",
    "OF_AN_ADDRESS",
)
PLANTED = {name: f"planted{secrets.token_hex(12)}" for name in NAMES}
# Ray's folder goes with the run; here it is to be looked through afterwards.
KEEP = """
import types
from topk_platform.running.cluster import driver_process as scratch
scratch.shutil = types.SimpleNamespace(rmtree=lambda *_, **__: None)
"""


def texts(name: str, data: bytes) -> Iterator[tuple[str, str]]:
    """All that a file says, what is packed or compressed in it unpacked, each with the file's name."""
    yield name, data.decode("latin-1")
    if data.startswith(b"PK"):
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            for inner in packed.namelist():
                yield from texts(f"{name}/{inner}", packed.read(inner))
    elif data.startswith(b"PAR1"):
        table = pq.read_table(io.BytesIO(data))
        yield name, f"{table.schema.metadata}{table.to_pylist()}"


def of_folder(folder: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield from texts(str(path.relative_to(folder)), path.read_bytes())
        if path.is_file() and path.suffix == ".db":
            with closing(sqlite3.connect(path)) as database:
                yield path.name, "\n".join(database.iterdump())


def of_bucket(uri: str) -> Iterator[tuple[str, str]]:
    files = Store.open(uri)._files
    for batch in files.list():  # type: ignore[attr-defined]
        for result in batch:
            yield from texts(result["path"], bytes(files.get(result["path"]).bytes()))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """An MLflow server by an address with a user and a password, whose files lie in ``mlflow``."""
    (tmp_path / "mlflow").mkdir()
    made = MlflowServer(tmp_path / "mlflow")
    try:
        made.start()
        yield f"http://me:{PLANTED['OF_AN_ADDRESS']}@127.0.0.1:{made.port}"
    finally:
        made.kill()


def test_no_secret_is_left_anywhere(
    visited: Any, server: str, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "import lab\n\n\ndef two():\n    return lab.study('none', 'raises')\n"
    (visited.folder / "secrets_lab.py").write_text(module)
    said = tmp_path / "said"
    said.mkdir()
    planted = {name: value for name, value in PLANTED.items() if name != "OF_AN_ADDRESS"}
    planted |= {"AWS_ACCESS_KEY_ID": "me", "MLFLOW_TRACKING_USERNAME": "me"}

    def tell(name: str, text: str) -> None:
        (said / f"{len(list(said.iterdir()))} {name}").write_text(text)

    def topk(*arguments: str | Path, code: int = 0) -> None:
        tell(str(arguments[0]), "".join(visited.topk(*arguments, "--store", bucket, code=code)))

    # One of the two arms fails, whose error is recorded.
    run = ("run", "secrets_lab:two", "--store", bucket, "--mlflow", server)
    process = visited.start(*run, before=KEEP, **planted, RAY_AUTH_MODE="token", TOPK_REPORT="on")
    tell("run", "".join(process.communicate()))
    assert process.returncode == 1
    for name, value in planted.items():
        monkeypatch.setenv(name, value)
    topk("run", "secrets_lab:two", "--mlflow", server.replace("http:", "ftp:"), code=2)
    plan = ("plan", "secrets_lab:two", "--address", "127.0.0.1:9", "--mlflow")
    topk(*plan, server.rpartition(":")[0] + ":9", code=1)
    topk(*plan, server, "--json", code=1)
    topk("status")
    topk("report", "secrets_lab:two", "--to", said / "report.html")
    left = [
        *((f"ray {name}", text) for name, text in of_folder(Path(os.environ["RAY_TMPDIR"]))),
        *((f"mlflow {name}", text) for name, text in of_folder(tmp_path / "mlflow")),
        *((f"store {name}", text) for name, text in of_bucket(bucket)),
        *((f"said {name}", text) for name, text in of_folder(said)),
    ]
    # It would be found: what does stand everywhere is.
    known = [name for name, text in left if "lab:mischief" in text]
    for prefix in ("mlflow server.db", "store lab/ledger/kind=trials/"):
        assert any(name.startswith(prefix) for name in known), prefix
    assert any(name.startswith("ray ") for name, _ in left)
    result = [(name, secret) for name, text in left for secret, value in PLANTED.items() if value in text]
    assert result == []
