"""Images are read as a viewer shows them."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, ImageOps
from PIL.ExifTags import Base

from topk_platform.data.images.decoding import UnreadableImageError, appearance, is_on_its_side, square
from topk_platform.data.images.in_files import scaled

Pixels = npt.NDArray[np.uint8]

PLAIN = np.random.default_rng(0).integers(0, 256, (6, 4, 3), dtype=np.uint8)
# What a viewer makes of the stored rows and columns, from the table of EXIF 2.32 (tag 0x0112): which corner and which
# side of the scene the first row and the first column are.
SHOWN = {
    1: PLAIN,
    2: PLAIN[:, ::-1],
    3: PLAIN[::-1, ::-1],
    4: PLAIN[::-1],
    5: PLAIN.transpose(1, 0, 2),
    6: PLAIN[::-1].transpose(1, 0, 2),
    7: PLAIN[::-1, ::-1].transpose(1, 0, 2),
    8: PLAIN[:, ::-1].transpose(1, 0, 2),
}


def turned(path: Path, pixels: Pixels, orientation: int) -> Path:
    """Write an image with an orientation."""
    exif = Image.Exif()
    exif[Base.Orientation] = orientation
    Image.fromarray(pixels).save(path, exif=exif, quality=95)
    return path


def shown(path: Path, mode: str = "RGB") -> Pixels:
    with Image.open(path) as image:
        return np.asarray(appearance(image, mode))


@pytest.mark.parametrize(("dtype", "mode"), [(np.float32, "F"), (np.int32, "I")])
def test_pixels_without_a_range_are_refused(tmp_path: Path, dtype: npt.DTypeLike, mode: str) -> None:
    """Pillow would make all values above 255 white, and those of a picture in [0, 1] black."""
    path = tmp_path / "photos" / "moon" / "height.tif"
    path.parent.mkdir(parents=True)
    Image.fromarray(np.arange(16, dtype=dtype).reshape(4, 4) * 100).save(path)
    message = rf"height\.tif.*its pixels are of Pillow's mode {mode} "
    with pytest.raises(UnreadableImageError, match=message):
        square(path, 4)
    with pytest.raises(UnreadableImageError, match=message):
        scaled(path, 4)


@pytest.mark.parametrize("orientation", SHOWN)
@pytest.mark.parametrize("ending", ["png", "tif", "webp"])
def test_a_photo_stands_as_the_camera_was_held(tmp_path: Path, ending: str, orientation: int) -> None:
    path = tmp_path / f"a.{ending}"
    exif = Image.Exif()
    exif[Base.Orientation] = orientation
    Image.fromarray(PLAIN).save(path, exif=exif, **({"lossless": True} if ending == "webp" else {}))
    with Image.open(path) as image:
        assert is_on_its_side(image) == (image.size[::-1] != SHOWN[orientation].shape[:2])
    assert np.array_equal(shown(path), SHOWN[orientation])
    small = Image.fromarray(SHOWN[orientation]).resize(
        (2, 3) if orientation < 5 else (3, 2), Image.Resampling.BILINEAR
    )
    assert np.array_equal(scaled(path, 2), np.asarray(small))


@pytest.mark.parametrize("orientation", SHOWN)
def test_a_large_photo_is_turned_when_a_fraction_of_it_is_decoded(tmp_path: Path, orientation: int) -> None:
    """Against Pillow's own turning of the whole, scaled: of a smooth picture no pixel differs by more than 3 of 255."""
    ramp = np.linspace(0, 255, 800)[None, :, None] * np.linspace(0.2, 1, 600)[:, None, None] * [1, 0.5, 0.25]
    path = turned(tmp_path / "a.jpg", ramp.astype(np.uint8), orientation)
    whole = ImageOps.exif_transpose(Image.open(path))
    size = (80, 60) if orientation < 5 else (60, 80)
    result = scaled(path, 60)
    assert result.shape == (*size[::-1], 3)
    assert np.abs(result.astype(int) - np.asarray(whole.resize(size, Image.Resampling.BILINEAR))).max() <= 3


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
@pytest.mark.parametrize("exif", [b"Exif\0\0nonsense", b"Exif\0\0II*\0\x08\0\0\0\xff\xff", b"", b"x"])
def test_broken_exif_data_are_no_reason_to_refuse_an_image(tmp_path: Path, exif: bytes) -> None:
    Image.fromarray(PLAIN).save(tmp_path / "a.webp", exif=exif, lossless=True)
    Image.fromarray(PLAIN).save(tmp_path / "a.png", exif=exif)
    for name in ("a.webp", "a.png"):
        assert np.array_equal(shown(tmp_path / name), PLAIN)


def test_what_is_transparent_is_white(tmp_path: Path) -> None:
    clear = np.zeros((1, 3, 4), dtype=np.uint8)
    clear[0, 1] = 255, 0, 0, 255
    clear[0, 2] = 0, 0, 0, 102  # which hides 40 % of the white
    Image.fromarray(clear).save(tmp_path / "a.png")
    assert shown(tmp_path / "a.png").tolist() == [[[255, 255, 255], [255, 0, 0], [153, 153, 153]]]
    assert shown(tmp_path / "a.png", "L").tolist() == [[255, 76, 153]]
    assert np.array_equal(shown(tmp_path / "a.png", "RGBA"), clear)
    Image.fromarray(np.array([[7, 9]], dtype=np.uint8)).save(tmp_path / "grey.png", transparency=7)
    assert shown(tmp_path / "grey.png", "L").tolist() == [[255, 9]]


DEEP = np.array([[0, 255, 256], [32768, 65534, 65535]], dtype=np.uint16)
UPPER = [[0, 0, 1], [128, 255, 255]]


def big_endian_tiff() -> bytes:
    """A TIFF with the upper byte of each value first, which Pillow reads and does not write."""
    shorts = {258: 16, 259: 1, 262: 1, 277: 1}
    longs = {256: 3, 257: 2, 273: 8, 278: 2, 279: DEEP.nbytes}
    entries = {tag: struct.pack(">HHIHH", tag, 3, 1, value, 0) for tag, value in shorts.items()}
    entries |= {tag: struct.pack(">HHII", tag, 4, 1, value) for tag, value in longs.items()}
    table = struct.pack(">H", len(entries)) + b"".join(entries[tag] for tag in sorted(entries)) + bytes(4)
    return struct.pack(">2sHI", b"MM", 42, 8 + DEEP.nbytes) + DEEP.astype(">u2").tobytes() + table


def deep_image(path: Path) -> Path:
    """Write ``DEEP`` in the form that the file's name says."""
    if path.name == "big.tif":
        path.write_bytes(big_endian_tiff())
    elif path.name == "text.pgm":
        path.write_text("P2\n3 2\n65535\n" + " ".join(map(str, DEEP.flatten())))
    else:
        Image.fromarray(DEEP).save(path)
    return path


@pytest.mark.parametrize("name", ["a.png", "a.tif", "big.tif", "a.pgm", "text.pgm"])
def test_of_sixteen_bits_the_upper_eight_are_kept(tmp_path: Path, name: str) -> None:
    path = deep_image(tmp_path / name)
    assert shown(path, "L").tolist() == UPPER
    assert shown(path).tolist() == np.repeat(np.array(UPPER)[..., None], 3, 2).tolist()
    assert square(path, 0).tolist() == [UPPER] * 3


def test_a_pgm_of_fewer_bits_than_sixteen_is_scaled(tmp_path: Path) -> None:
    (tmp_path / "a.pgm").write_bytes(b"P5\n3 1\n4095\n" + np.array([0, 2048, 4095], dtype=">u2").tobytes())
    assert shown(tmp_path / "a.pgm", "L").tolist() == [[0, 128, 255]]


def test_a_turned_image_of_sixteen_bits_is_turned_back_and_the_given_one_stays(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[Base.Orientation] = 6
    Image.fromarray(DEEP).save(tmp_path / "a.png", exif=exif)
    with Image.open(tmp_path / "a.png") as image:
        assert np.asarray(appearance(image, "L")).tolist() == np.rot90(UPPER, -1).tolist()
        assert (image.mode, image.size) == ("I;16", (3, 2))
