from __future__ import annotations

import errno
import os
import pickle
import re
import resource
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock
from urllib.parse import parse_qsl

import pytest
from made_records import filled
from made_records import make_record as record

from topk_platform.data import use_data_folder
from topk_platform.errors import StoreError, UserError
from topk_platform.records.ledger import Ledger
from topk_platform.records.storage.backends import Folder
from topk_platform.records.storage.store import Store
from topk_platform.specs import Study


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "runs")
    store.write("a/b.bin", b"one")
    store.write("a/b.bin", b"two")
    assert store.read("a/b.bin") == b"two"
    (tmp_path / "runs" / "a" / "taken" / "inside").mkdir(parents=True)
    with pytest.raises(StoreError, match="cannot be written"):
        store.write("a/taken", b"three")
    assert [path.name for path in sorted((tmp_path / "runs" / "a").iterdir())] == ["b.bin", "taken"]


@pytest.mark.parametrize("kind", ["folder", "s3"])
def test_files_are_kept_listed_and_deleted_alike(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    store = Store.open(tmp_path / "runs" if kind == "folder" else f"{request.getfixturevalue('bucket')}")
    assert not store.exists()
    assert (store.names("a"), store.folders()) == ([], [])
    store.write("a/x.parquet", b"data")
    store.write("a/y.parquet", Path(__file__))
    assert store.at("a").read("x.parquet") == b"data"
    assert (store.names("a", "x.parquet"), store.folders(), store.names()) == (["x.parquet"], ["a"], [])
    assert store.exists("a") and store.exists("a/x.parquet") and not store.exists("a/z")
    assert [store.create("a/lock", content) for content in (b"1", b"2")] == [True, False]
    assert store.read("a/lock") == b"1"
    with pytest.raises(FileNotFoundError):
        store.read("a/z")
    store.check_writable()
    assert store.names() == []
    store.delete("a/x.parquet", "a/x.parquet", "a/never")
    store.delete_folder("a")
    assert not store.exists("a")
    again: Store = pickle.loads(pickle.dumps(Store.open(store.address)))  # noqa: S301 - our own
    assert again.address == store.address
    assert (store.local is None) == (kind == "s3")


def test_what_a_kill_leaves_in_a_folder_is_deleted_with_it(tmp_path: Path) -> None:
    """A file that was half written, and a folder that was made for one."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "a" / ".x.ckpt.0123.tmp").write_bytes(b"half")
    store = Store.open(tmp_path)
    assert (store.folders(), store.names("a")) == (["a"], [])
    store.delete_folder("a")
    assert not (tmp_path / "a").exists()
    store.write("b/c/file", b"data")
    store.delete("b/c/file")
    assert list(tmp_path.iterdir()) == []  # empty parents go with their last file


def test_a_folder_lists_what_links_lead_to(tmp_path: Path) -> None:
    for name in ("inside/file", "file"):
        Store.open(tmp_path).write(name, b"")
    for name, target in {"folder": "inside", "other": "file", "itself": "itself", "nowhere": "gone"}.items():
        (tmp_path / name).symlink_to(target)
    store = Store.open(tmp_path)
    assert store.folders() == ["folder", "inside"]
    assert store.names() == ["file", "itself", "nowhere", "other"]


def test_a_file_is_written_though_another_process_deletes_its_empty_folders_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, deletions = Path.mkdir, [2]

    def find_no_parent(self: Path, *arguments: Any, **keywords: Any) -> None:
        if deletions[0]:
            deletions[0] -= 1
            raise FileNotFoundError(self)
        original(self, *arguments, **keywords)

    monkeypatch.setattr(Path, "mkdir", find_no_parent)
    Folder(tmp_path).put("a/b/file", b"data")
    assert (tmp_path / "a" / "b" / "file").read_bytes() == b"data"


def test_a_folder_that_may_not_be_written_is_named_and_no_file_that_nobody_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = PermissionError(errno.EACCES, os.strerror(errno.EACCES), "a name of our own")
    monkeypatch.setattr(Folder, "put", Mock(side_effect=refusal))
    with pytest.raises(StoreError, match=f"^store '{tmp_path}/runs' cannot be written: .* in {tmp_path}$"):
        Store.open(tmp_path / "runs").check_writable()


def test_a_server_without_conditional_writes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = Folder.put
    monkeypatch.setattr(Folder, "put", lambda folder, name, data, **_: put(folder, name, data))
    with pytest.raises(StoreError, match="two processes create the same file"):
        Store.open(tmp_path).check_writable()
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_noticed_and_nothing_stays_on_it(tmp_path: Path) -> None:
    """A limit on the size of files stands for a disk with half a MiB left."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**19, before[1]))
    try:
        with pytest.raises(StoreError, match="cannot be written"):
            Store.open(tmp_path / "runs").check_writable()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("disk", "said"),
    [
        ({}, ""),
        ({"f_bavail": 3}, "No space left on device"),
        ({"f_bavail": 0, "f_blocks": 0}, ""),  # a file system that counts nothing
        ({"f_flag": os.ST_RDONLY}, "Read-only file system"),
    ],
)
def test_a_full_or_read_only_disk_is_seen_without_writing(
    disk: dict[str, int], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = {"f_flag": 0, "f_bavail": 10**6, "f_blocks": 10**6, "f_frsize": 4096}
    monkeypatch.setattr("os.statvfs", lambda _: SimpleNamespace(**{**usual, **disk}))
    with pytest.raises(StoreError, match=f"cannot be written: .*{said}") if said else nullcontext():
        Store.open(tmp_path).check_disk()


def test_a_blank_place_is_not_the_current_folder() -> None:
    for blank in ("", "  "):
        with pytest.raises(UserError, match=r"store must not be blank, got .*: is a variable unset"):
            Store.open(blank)
        with pytest.raises(UserError, match="data must not be blank"):
            use_data_folder(blank)


def test_a_place_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "runs"):
        with pytest.raises(
            StoreError, match=f"^store '{folder}' cannot be written: {tmp_path}/file is a file"
        ):
            Store.open(folder).check_writable()
    with pytest.raises(StoreError, match="cannot be opened: it must be a folder or a URI of s3, gs, az"):
        Store.open("nosuch://bucket")


@pytest.mark.parametrize(
    "uri",
    [
        *("s3://key:planted@b/runs", "s3://b/runs?secret_access_key=planted", "s3://b?token=planted"),
        *("s3://key:pla/nted@bucket/runs", "s3://key:pla?nted@bucket", "s3://key:pla#nted@bucket"),
        *("gs://key:planted@bucket/runs", "az://key:pla/nted@container", "abfss://c:planted@a.net/x"),
        *("s3://b?endpoint=http://me:planted@host:9000", "s3://b?endpoint=http://me:pla/nted@host:9000"),
    ],
)
def test_credentials_have_no_place_in_a_uri(uri: str) -> None:
    with pytest.raises(StoreError, match="environment") as error:
        Store.open(uri)
    assert not {"planted", "pla", "nted"} & set(re.findall(r"\w+", str(error.value)))
    container = "abfss://container@account.dfs.core.windows.net/runs"  # no user's name stands before this @
    assert Store.open(container).at("x").root == f"{container}/x"


def test_an_endpoint_of_the_environment_is_as_one_in_the_uri(
    bucket: str, study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By plain HTTP as well, for the files and for Delta Lake; a password in it is refused and not shown."""
    folder, _, options = bucket.partition("?")
    endpoint = dict(parse_qsl(options))["endpoint"]
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    store = Store.open(folder)
    store.write("a/b", b"one")
    assert Store.open(bucket).read("a/b") == b"one"
    store.delete_folder("a")
    ended = record(study)
    filled(folder, study, ended)
    assert Ledger.open(Store.open(bucket), study.name).keys() == [ended.trial.key]
    with pytest.raises(StoreError, match="the option endpoint must name a server"):
        Store.open(f"{folder}?endpoint=")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://me:pla/nted@127.0.0.1:9")
    with pytest.raises(StoreError, match="AWS_ENDPOINT_URL_S3 must not hold credentials") as error:
        Store.open(folder)
    assert "nted" not in str(error.value)


def test_a_server_that_is_down_is_reported_in_a_line() -> None:
    store = Store.open("s3://bucket/runs?endpoint=http://127.0.0.1:9&region=x")
    with pytest.raises(StoreError, match=r"^store 's3://bucket/runs' cannot be written: [^\n]*$"):
        store.check_writable()


def test_a_folder_needs_neither_obstore_nor_delta_lake(tmp_path: Path) -> None:
    """Where models are only trained, as by `make gpu`, there may be neither."""
    code = (
        "import sys; sys.modules['obstore'] = sys.modules['deltalake'] = None\n"
        "from topk_platform.records.networks import StoreKeeper\n"
        "from topk_platform.records.storage.store import Store\n"
        f"store = Store.open({str(tmp_path)!r})\n"
        "store.check_writable(); store.write('a/b', b'c'); keeper = StoreKeeper(store)\n"
        "print(store.read('a/b'), store.names('a'), store.folders(), store.create('a/b', b'd'))\n"
        "store.delete_folder('a'); print(store.folders())"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout == "b'c' ['b'] ['a'] False\n[]\n", run.stderr
