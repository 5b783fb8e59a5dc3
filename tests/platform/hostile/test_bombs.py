"""Small files that would unpack to gigabytes: refused in a line, before they take the memory."""

from __future__ import annotations

import gzip
import io
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import hostile
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from forks import Commands
from PIL import Image

from topk_platform import UserError
from topk_platform.evidence import Bundle, archive
from topk_platform.serving.pictures import read_inputs
from topk_platform.specs import Inputs

BYTES = 160 * 2**20  # of a bomb
LIMITED = {"TOPK_FILE_GIB": str(1 / 8)}  # 128 MiB; a user's are 4 GiB
MEBIBYTES = (
    450  # above what a command takes that does nothing: an eighth of a GiB and libraries that are loaded
)


def of_zeros(good: bytes) -> bytes:
    """A member of zeros, which take a two-hundredth of their size."""
    buffer = io.BytesIO(good)
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("results/zeros.md", bytes(BYTES))
    return buffer.getvalue()


def of_zeros_that_lie(good: bytes) -> bytes:
    """The same, which say that they are a thousand bytes."""
    data = bytearray(of_zeros(good))
    at = data.index(b"results/zeros.md")
    data[at - 30 + 22 : at - 30 + 26] = struct.pack("<I", 1000)
    at = data.rindex(b"results/zeros.md")
    data[at - 46 + 24 : at - 46 + 28] = struct.pack("<I", 1000)
    return bytes(data)


def of_rows(good: bytes) -> bytes:
    """A ledger with forty million rows in every column, all equal."""
    files = hostile.files_of(good)
    schema = pq.read_schema(io.BytesIO(files["ledger.parquet"]))
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, pa.schema([("kind", pa.null())])) as writer:
        writer.write_table(pa.table({"kind": pa.nulls(40_000_000)}))
    assert "kind" in schema.names
    return hostile.sealed({**files, "ledger.parquet": sink.getvalue()})


def of_texts(good: bytes) -> bytes:
    """A ledger whose column of configurations is one text of a megabyte, a thousand times."""
    files = hostile.files_of(good)
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int32()), ["x" * 2**20])
    sink = io.BytesIO()
    pq.write_table(
        pa.table({"config": text}).cast(pa.schema([("config", text.type)])), sink, compression="zstd"
    )
    return hostile.sealed({**files, "ledger.parquet": sink.getvalue()})


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (of_zeros, "its content takes 0.15"),
        (of_zeros_that_lie, "Bad CRC-32 for file 'results/zeros.md'"),
        (of_rows, "ledger.parquet takes 0.298 GiB, more than 0.125 GiB: TOPK_FILE_GIB allows more"),
        (of_texts, "ledger.parquet takes 0.977 GiB, more than 0.125 GiB: TOPK_FILE_GIB allows more"),
    ],
)
def test_bundles(made: Callable[[bytes], bytes], why: str, good: Path, topk: Commands) -> None:
    content = made((good / "good.topk").read_bytes())
    assert len(content) < 30 * 2**20
    (good / "bomb.topk").write_bytes(content)
    ended = topk.run("verify", "bomb.topk", **LIMITED)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1), ended
    assert why in ended.err and "bomb.topk" in ended.err
    assert ended.mebibytes < topk.base + MEBIBYTES


def test_an_archive_has_no_more_members_than_runs_can_be(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MOST_MEMBERS", 5)
    with pytest.raises(UserError, match=r"good\.topk' must be a file .*: it has \d+ files, more than 5"):
        Bundle.read(good / "good.topk")


def test_a_ratio_that_no_bundle_has_is_refused_at_any_size(good: Path, topk: Commands) -> None:
    (good / "bomb.topk").write_bytes(of_zeros((good / "good.topk").read_bytes()))
    ended = topk.run("verify", "bomb.topk")
    assert ended.code == 2 and "times as large as the file; at most 100 times is allowed" in ended.err


@pytest.mark.parametrize("letters", [b" ", b"[", b"[],"])
def test_findings(letters: bytes, good: Path, topk: Commands) -> None:
    (good / "bomb.json.gz").write_bytes(gzip.compress(letters * (BYTES // len(letters)), 1))
    ended = topk.run("findings", "bomb.json.gz", **LIMITED)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1), ended
    assert "TOPK_FILE_GIB allows more" in ended.err and "bomb.json.gz" in ended.err
    assert ended.mebibytes < topk.base + MEBIBYTES


def test_the_variable_is_held_to_its_rule(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ("0", "much", "-1", "nan", "inf"):
        monkeypatch.setenv("TOPK_FILE_GIB", wrong)
        with pytest.raises(UserError, match="TOPK_FILE_GIB must be a number of GiB above 0"):
            Bundle.read(good / "good.topk")
    monkeypatch.setenv("TOPK_FILE_GIB", "0.00001")
    with pytest.raises(UserError, match="TOPK_FILE_GIB allows more"):
        Bundle.read(good / "good.topk")


def test_arrays_that_claim_terabytes(tmp_path: Path) -> None:
    inputs = Inputs((4,), 3, "tensor")
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (2**40,)})
    (tmp_path / "large.npy").write_bytes(header.getvalue())
    np.savez_compressed(tmp_path / "several.npz", x=np.zeros(4))
    (tmp_path / "several.npz").rename(tmp_path / "several.npy")
    for name, why in (("large", "cannot be read as .npy"), ("several", "an archive of several arrays")):
        with pytest.raises(UserError, match=why):
            read_inputs([tmp_path / f"{name}.npy"], inputs)


@pytest.mark.parametrize("resize", [0, 9])
def test_images(tmp_path: Path, resize: int) -> None:
    """One of too many pixels, and one that has them only when it is scaled."""
    inputs = Inputs((3, 512, 512), 2, "image", (), (0.5,) * 3, (0.5,) * 3, resize and 600)
    Image.new("1", (14_000, 14_000)).save(tmp_path / "large.png")
    Image.new("RGB", (1, 60_000)).save(tmp_path / "narrow.png")
    for name, why in (("large", "decompression bomb"), ("narrow", "it is so narrow that it has")):
        with pytest.raises(UserError, match=f"image .*{name}.png cannot be read: .*{why}"):
            read_inputs([tmp_path / f"{name}.png"], inputs)
