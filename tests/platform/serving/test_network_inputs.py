"""What a network may be given: files, folders, Pillow images, arrays and tensors give the same inputs."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from topk_platform import UserError
from topk_platform.serving.network_inputs import Given, listed, read_inputs
from topk_platform.specs import Inputs

IN_MEMORY = Inputs((3, 8, 8), 2, "image", mean=(0.5,) * 3, std=(0.2,) * 3)
IN_FILES = Inputs((3, 8, 8), 2, "image", mean=(0.5,) * 3, std=(0.2,) * 3, resize=9)
GREY = Inputs((1, 8, 8), 2, "image", mean=(0.5,), std=(0.2,))
NUMBERS = Inputs((5,), 2, "tensor")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    draw, folder = np.random.default_rng(0), tmp_path / "photos"
    (folder / "more").mkdir(parents=True)
    for name in ("b.png", "a.png", "more/c.png"):
        Image.fromarray(draw.integers(0, 256, (13, 21, 3), dtype=np.uint8)).save(folder / name)
    (folder / "notes.txt").write_text("no image")
    return folder


@pytest.mark.parametrize("takes", [IN_MEMORY, IN_FILES, GREY])
def test_an_image_gives_the_same_inputs_however_it_is_given(photos: Path, takes: Inputs) -> None:
    paths = [photos / "a.png", photos / "b.png", photos / "more" / "c.png"]
    expected = read_inputs(paths, takes)
    assert expected.shape == (3, *takes.shape) and expected.dtype == torch.uint8
    images = [Image.open(path) for path in paths]
    arrays = [np.asarray(image) for image in images]
    stacked = np.stack(arrays)
    for given in (photos, list(map(str, paths)), images, arrays, stacked, torch.from_numpy(stacked)):
        assert torch.equal(read_inputs(listed(given, takes), takes), expected)
    for given in (expected, expected.numpy(), list(expected)):  # as the network takes them
        assert torch.equal(read_inputs(listed(given, takes), takes), expected)
    assert len(listed(paths[0], takes)) == len(listed(images[0], takes)) == len(listed(arrays[0], takes)) == 1


@pytest.mark.parametrize("name", ["a.pgm", "a.png", "turned.tif", "turned.png"])
@pytest.mark.parametrize("takes", [IN_MEMORY, IN_FILES, GREY])
def test_a_deep_image_or_one_on_its_side_is_read_as_its_file(
    tmp_path: Path, name: str, takes: Inputs
) -> None:
    draw, exif, path = np.random.default_rng(0), Image.Exif(), tmp_path / name
    if name.startswith("turned"):
        exif[0x0112] = 6
        Image.fromarray(draw.integers(0, 256, (13, 21, 3), dtype=np.uint8)).save(path, exif=exif)
    else:
        Image.fromarray(draw.integers(0, 2**16, (13, 21), dtype=np.uint16)).save(path)
    expected = read_inputs([path], takes)
    assert 90 < expected.float().mean() < 165
    with Image.open(path) as image:
        for _ in range(2):  # not yet read, and read
            assert torch.equal(read_inputs([image], takes), expected)


def test_an_image_of_pillows_stays_as_it_was() -> None:
    image = Image.new("RGB", (4, 2))
    image.getexif()[0x0112] = 6  # lies on its side
    read_inputs([image], IN_MEMORY)
    read_inputs([image], IN_FILES)
    assert image.size == (4, 2)


def test_numbers_are_arrays_tensors_files_and_folders(tmp_path: Path) -> None:
    rows = np.arange(10.0).reshape(2, 5)
    for number, row in enumerate(rows):
        np.save(tmp_path / f"{number}.npy", row)
    tensor = torch.from_numpy(rows)
    for given in (rows, tensor, tensor.bfloat16(), list(rows), rows.astype(int), tmp_path):
        taken = read_inputs(listed(given, NUMBERS), NUMBERS)
        assert taken.dtype == torch.float32 and np.array_equal(taken, rows)
    assert np.array_equal(read_inputs(listed(rows[0], NUMBERS), NUMBERS), rows[:1])


@pytest.mark.parametrize(
    ("given", "takes", "why"),
    [
        (np.zeros((8, 8, 3)), IN_MEMORY, r"must be uint8 .* got float64 of shape \(8, 8, 3\): take \(255"),
        (np.zeros((8, 8, 2), np.uint8), IN_MEMORY, r"got uint8 of shape \(8, 8, 2\)$"),
        (Image.new("RGB", (4, 3)), NUMBERS, "takes numbers .* got an image of 4 × 3 pixels"),
        (np.zeros(4), NUMBERS, r"must hold numbers .* got float64 of shape \(4,\)"),
        (7, IN_MEMORY, "an input must be .* got int"),
        ([None], IN_MEMORY, "an input must be .* got NoneType"),
        ([""], IN_MEMORY, "an input must be .* got ''"),
    ],
)
def test_what_else_is_given_is_named(given: Given, takes: Inputs, why: str) -> None:
    with pytest.raises(UserError, match=why):
        read_inputs(listed(given, takes), takes)


@pytest.mark.parametrize("takes", [IN_MEMORY, NUMBERS])
def test_hidden_files_are_left_out_and_links_followed_but_in_a_circle(tmp_path: Path, takes: Inputs) -> None:
    """As in a folder of training images; two links to the folder around them would lead to billions of paths."""
    ending, folder = ("png" if takes is IN_MEMORY else "npy"), tmp_path / ".cache" / "own"
    for name in ("a", "._a", ".ipynb_checkpoints/a-checkpoint", "more/b", "other/c", "../around/d"):
        path = folder / f"{name}.{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    for name in ("more", "other"):
        for link in ("up", "round"):
            (folder / name / link).symlink_to("..")
    (folder / "linked").symlink_to("../around")
    (folder / "itself").symlink_to(".")
    expected = [folder / f"{name}.{ending}" for name in ("a", "linked/d", "more/b", "other/c")]
    assert listed(folder, takes) == expected


@pytest.mark.parametrize("side", [(90, 130), (130, 90), (131, 131)])
@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_a_jpeg_of_pillows_is_read_as_its_file_is_and_stays_as_it_was(
    tmp_path: Path, mode: str, side: tuple[int, int]
) -> None:
    """A file's JPEG is decoded at a fraction of its size; a service opens it from the bytes that it gets."""
    exif = Image.Exif()
    exif[0x0112] = 6
    pixels = np.random.default_rng(0).integers(0, 256, (*side, 3), dtype=np.uint8)
    Image.fromarray(pixels).convert(mode).save(tmp_path / "a.jpg", exif=exif)
    expected = read_inputs([tmp_path / "a.jpg"], IN_FILES)
    image = Image.open(io.BytesIO((tmp_path / "a.jpg").read_bytes()))
    for _ in range(2):
        assert torch.equal(read_inputs([image], IN_FILES), expected)
    assert image.size == side[::-1] and np.asarray(image).shape[:2] == side


@pytest.mark.parametrize("takes", [IN_MEMORY, IN_FILES])
def test_a_tiff_of_floats_is_refused_as_in_training(tmp_path: Path, takes: Inputs) -> None:
    Image.fromarray(np.zeros((20, 20), np.float32)).save(tmp_path / "a.tif")
    with pytest.raises(UserError, match=r"a\.tif cannot be read: its pixels are of Pillow's mode F"):
        read_inputs([tmp_path / "a.tif"], takes)


def test_a_folder_without_files_for_the_network_is_named(photos: Path) -> None:
    with pytest.raises(UserError, match=r"photos must hold files for the network \(\.npy\), got none"):
        listed(photos, NUMBERS)
