"""Small files that would unpack to gigabytes: refused in a line, before they take the memory."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import numpy as np
import pytest
from forks import Commands
from PIL import Image

from topk_platform import UserError
from topk_platform.results.findings import Findings
from topk_platform.serving.network_inputs import read_inputs
from topk_platform.specs import Inputs

BYTES = 160 * 2**20  # of a bomb
LIMITED = {"TOPK_FILE_GIB": str(1 / 8)}  # 128 MiB; a user's are 4 GiB
MEBIBYTES = (
    450  # above what a command takes that does nothing: an eighth of a GiB and libraries that are loaded
)


@pytest.mark.parametrize("letters", [b" ", b"[", b"[],"])
def test_findings(letters: bytes, good: Path, topk: Commands) -> None:
    (good / "bomb.json.gz").write_bytes(gzip.compress(letters * (BYTES // len(letters)), 1))
    ended = topk.run("table", "bomb.json.gz", **LIMITED)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1), ended
    assert "TOPK_FILE_GIB allows more" in ended.err and "bomb.json.gz" in ended.err
    assert ended.mebibytes < topk.base + MEBIBYTES


def test_the_variable_is_held_to_its_rule(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ("0", "much", "-1", "nan", "inf"):
        monkeypatch.setenv("TOPK_FILE_GIB", wrong)
        with pytest.raises(UserError, match="TOPK_FILE_GIB must be a number of GiB above 0"):
            Findings.read(good / "good.json.gz")
    monkeypatch.setenv("TOPK_FILE_GIB", "0.00001")
    with pytest.raises(UserError, match="TOPK_FILE_GIB allows more"):
        Findings.read(good / "good.json.gz")


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
