"""Images that are read as they are needed: decoding, keeping, listing, streaming."""

from __future__ import annotations

import dataclasses
import errno
import os
import re
import shutil
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from image_archives import write_inaturalist
from PIL import Image
from torchvision.transforms.v2 import functional

from topk_platform import LabelNoise, LongTail, PerClass, TrainFraction, UserError
from topk_platform.data import Images, apply_conditions, image_files, image_folder
from topk_platform.data.datasets import image_files as image_files_module
from topk_platform.data.images import decoding, in_files, own_files
from topk_platform.data.images.decoding import UnreadableImageError, crop
from topk_platform.data.images.in_files import scaled
from topk_platform.data.images.listing import FileList
from topk_platform.data.images.own_files import from_folders


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder, with a small tree in it."""
    monkeypatch.setenv("TOPK_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("TOPK_CACHE", raising=False)
    write_inaturalist(tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture(autouse=True)
def disk_with_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is half free, however full this machine's is: on a disk that is nearly full no pixels are kept."""
    usage = shutil.disk_usage(tmp_path)
    half = usage._replace(free=usage.total // 2)
    monkeypatch.setattr(in_files.shutil, "disk_usage", lambda path: half)


def images(folder: Path, size: int = 12, resize: int = 16) -> Images:
    files = from_folders(folder / "inaturalist", {"train": "train"})
    return Images(files, torch.arange(len(files)), size, resize)


def picture(path: Path, size: tuple[int, int], mode: str = "RGB", kind: str = "PNG") -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    image = Image.fromarray(pixels).convert(mode)
    image.save(path, kind)
    return image


@pytest.mark.parametrize("size", [(40, 31), (31, 40), (20, 20), (16, 90), (7, 9)])
def test_images_are_scaled_and_cut_as_torchvision_does(tmp_path: Path, size: tuple[int, int]) -> None:
    image = picture(tmp_path / "a.png", size)
    expected = functional.resize(image, [16])
    assert np.array_equal(scaled(tmp_path / "a.png", 16), np.asarray(expected))
    middle = functional.center_crop(expected, [13, 13])
    assert np.array_equal(crop(scaled(tmp_path / "a.png", 16), 13), np.asarray(middle))


@pytest.mark.parametrize(("mode", "kind"), [("L", "JPEG"), ("CMYK", "JPEG"), ("P", "PNG"), ("RGBA", "PNG")])
def test_whatever_colours_an_image_has_three_come_out(tmp_path: Path, mode: str, kind: str) -> None:
    picture(tmp_path / "a.JPEG", (20, 30), mode, kind)
    assert scaled(tmp_path / "a.JPEG", 10).shape == (15, 10, 3)


def test_places_reach_from_corner_to_corner_and_no_further() -> None:
    pixels = np.arange(5 * 7, dtype=np.uint8).reshape(5, 7, 1)
    last = np.nextafter(1, 0)
    assert crop(pixels, 3, (0.0, 0.0))[0, 0] == 0
    assert crop(pixels, 3, (last, last))[-1, -1] == 34
    tops = [crop(pixels, 3, (top, 0.0))[0, 0, 0] // 7 for top in np.arange(300) / 300]
    assert np.bincount(tops).tolist() == [100, 100, 100]


@pytest.mark.parametrize("content", [b"", b"no picture", "half", "halfpng"])
def test_what_cannot_be_read_to_its_end_is_named(tmp_path: Path, content: bytes | str) -> None:
    path = tmp_path / "a.jpg"
    if isinstance(content, str):
        picture(path, (90, 90), kind="PNG" if content == "halfpng" else "JPEG")
        content = path.read_bytes()[: path.stat().st_size // 2]
    path.write_bytes(content)
    with pytest.raises(UnreadableImageError, match=r"image .*a.jpg cannot be read"):
        scaled(path, 8)


def test_what_has_gone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for cache in ("", str(tmp_path / "cache")):
        monkeypatch.setenv("TOPK_CACHE", cache)
        with pytest.raises(UnreadableImageError, match=r"image .*a.jpg is no longer there"):
            scaled(tmp_path / "a.jpg", 8)


def refuse(*arguments: object) -> None:
    raise AssertionError("not to be called")


def test_pixels_are_kept_where_the_user_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, cache = tmp_path / "a.jpg", tmp_path / "cache"
    picture(path, (40, 30), kind="JPEG")
    monkeypatch.delenv("TOPK_CACHE", raising=False)
    plain = scaled(path, 16)
    assert not cache.exists()
    monkeypatch.setenv("TOPK_CACHE", str(cache))
    assert np.array_equal(scaled(path, 16), plain)
    (kept,) = [result for result in cache.rglob("*") if result.is_file()]
    size = kept.stat().st_size
    with monkeypatch.context() as patch:
        patch.setattr(in_files, "decoded", refuse)
        assert np.array_equal(scaled(path, 16), plain)
    kept.write_bytes(kept.read_bytes()[:-1])  # half written when a machine went down
    assert np.array_equal(scaled(path, 16), plain)
    assert kept.stat().st_size == size
    os.utime(path, (1, 1))  # another picture, for all one can tell
    monkeypatch.setattr(in_files, "decoded", refuse)
    with pytest.raises(AssertionError, match="not to be called"):
        scaled(path, 16)


def test_kept_pixels_leave_others_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture(tmp_path / "a.jpg", (40, 30), kind="JPEG")
    monkeypatch.setenv("TOPK_CACHE", str(tmp_path / "cache"))
    usage = shutil.disk_usage(tmp_path)
    full = usage._replace(free=usage.total // 20 - 1)
    monkeypatch.setattr(in_files.shutil, "disk_usage", lambda path: full)
    assert scaled(tmp_path / "a.jpg", 16).shape == (16, 21, 3)
    assert not [result for result in (tmp_path / "cache").rglob("*") if result.is_file()]


def no_space(path: Path, _target: Path) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


@pytest.mark.parametrize("reason", ["full", "a file is in the way"])
def test_pixels_that_cannot_be_kept_are_one_warning_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("TOPK_CACHE", str(cache))
    if reason == "full":
        monkeypatch.setattr(Path, "replace", no_space)
    else:
        cache.touch()
    for name in ("a.jpg", "b.jpg"):
        picture(tmp_path / name, (40, 30), kind="JPEG")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("default")
        for name in ("a.jpg", "b.jpg", "a.jpg"):
            assert scaled(tmp_path / name, 16).shape == (16, 21, 3)
    (message,) = [str(warning.message) for warning in warned]
    assert f"cannot be kept in {cache / 'pixels'}, " in message and message.endswith("TOPK_CACHE")
    assert not [result for result in cache.rglob("*") if result.is_file()]


def test_lists_are_made_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = folder / "inaturalist"
    made = from_folders(root, {"train": "train"})
    location = min((root / "train").rglob("*.jpg"))
    assert made.names.tolist() == sorted(made.names.tolist())
    assert {made.path(row) for row in range(len(made))} == set((root / "train").rglob("*.jpg"))
    with monkeypatch.context() as patch:
        patch.setattr(own_files, "_images", refuse)
        again = from_folders(root, {"train": "train"})
    for field in dataclasses.fields(FileList):
        one, other = getattr(made, field.name), getattr(again, field.name)
        assert np.array_equal(one, other), field.name
    shutil.copy(location, location.with_name("another.jpg"))
    assert len(from_folders(root, {"train": "train"})) == len(made) + 1
    (kept,) = (folder / ".topk" / "lists").iterdir()
    for spoilt in (b"spoilt", b"", kept.read_bytes()[:200]):
        kept.write_bytes(spoilt)
        assert len(from_folders(root, {"train": "train"})) == len(made) + 1


@pytest.mark.parametrize("empty", ["more", "more/still"])
def test_images_that_come_into_an_empty_folder_of_a_class_are_noticed(empty: str, folder: Path) -> None:
    """The date of the class's own folder does not change then."""
    root = folder / "inaturalist"
    image = min((root / "train").rglob("*.jpg"))
    inner = image.parent / empty
    inner.mkdir(parents=True)
    count = len(from_folders(root, {"train": "train"}))
    assert len(from_folders(root, {"train": "train"})) == count
    shutil.copy(image, inner / "b.jpg")
    assert len(from_folders(root, {"train": "train"})) == count + 1


def test_a_list_without_room_on_the_disk_leaves_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "replace", no_space)
    with pytest.warns(UserWarning, match=r"every process makes the list .*TOPK_CACHE"):
        assert len(from_folders(folder / "inaturalist", {"train": "train"}))
    assert not list((folder / ".topk" / "lists").iterdir())


def test_batches_are_the_same_by_any_number_of_threads(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = images(folder)
    order = torch.randperm(len(files), generator=torch.Generator().manual_seed(0))
    places = torch.rand((len(files), 2), generator=torch.Generator().manual_seed(1))
    pairs = zip(order.tolist(), places.tolist(), strict=True)
    crops = [crop(scaled(files.files.path(row), 16), 12, tuple(key)) for row, key in pairs]
    expected = torch.from_numpy(np.stack(crops)).permute(0, 3, 1, 2)
    for threads in ("1", "3"):
        monkeypatch.setenv("TOPK_DECODERS", threads)
        got = list(files.stream(torch.split(order, 5), torch.split(places, 5)))
        assert [len(batch) for batch in got[:-1]] == [5] * (len(got) - 1)
        assert torch.equal(torch.cat(got), expected)
        assert got[0].is_contiguous() and got[0].dtype == files.dtype
        assert torch.cat(got).shape == files.shape


def test_a_part_of_a_split_is_that_part(folder: Path) -> None:
    files = images(folder)
    whole = torch.cat(list(files.in_order()))
    rows = torch.tensor([7, 2, 2, 11])
    assert torch.equal(torch.cat(list(files[rows].in_order())), whole[rows])
    assert files[rows].names == [files.names[row] for row in rows.tolist()]
    assert files[rows][torch.tensor([3])].names == [files.names[11]]


def test_only_a_few_batches_are_decoded_ahead(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one thread 16 images ahead: of batches of 8, two and one more."""
    monkeypatch.setenv("TOPK_DECODERS", "1")
    files = images(folder)
    asked: list[int] = []

    def batches() -> object:
        for number in range(100):
            asked.append(number)
            yield torch.arange(8)

    stream = files.stream(batches())  # type: ignore[arg-type]
    for number in range(20):
        next(stream)
        assert len(asked) == number + 4
    stream.close()  # type: ignore[attr-defined]


def test_an_epoch_that_is_broken_off_leaves_no_work(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPK_DECODERS", "1")
    files, gate = images(folder), threading.Event()
    read: list[Path] = []

    def slow(path: Path, resize: int) -> np.ndarray:
        read.append(path)
        if len(read) > 8:
            gate.wait(60)
        return np.zeros((resize, resize, 3), dtype=np.uint8)

    monkeypatch.setattr("topk_platform.data.images.in_files.scaled", slow)
    stream = files.stream([torch.arange(8)] * 4)
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    gate.set()
    decoding.pool().submit(int).result()  # what was under way is over
    assert len(read) <= 8 + 4  # the task that had begun; of the 24 others none is read


def test_an_unreadable_image_ends_its_batch_by_name(folder: Path) -> None:
    files = images(folder)
    files.files.path(9).write_bytes(b"no picture")
    stream = files.stream(torch.split(torch.arange(len(files)), 4))
    assert len(next(stream)) == len(next(stream)) == 4
    with pytest.raises(UnreadableImageError, match=str(files.files.path(9))):
        next(stream)


def test_unreadable_images_are_named_and_left_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = image_files("inaturalist", 12, 16)
    train = from_folders(folder / "inaturalist", {"train": "train"})
    for row in (3, 8):
        train.path(row).write_bytes(train.path(row).read_bytes()[:300])
    with pytest.warns(UserWarning, match=r"2 of \d+ images .* left out: train/") as warned:
        left = image_files("inaturalist", 12, 16, unreadable="skip")
    for row in (3, 8):
        assert train.names[row].decode() in str(warned[0].message)
    assert len(whole.train) + len(whole.validation) == 2 + len(left.train) + len(left.validation)
    assert left.fingerprint != whole.fingerprint
    # Images are read to their end once, not by every process.
    monkeypatch.setattr(image_files_module, "scaled", refuse)
    with pytest.warns(UserWarning, match="left out"):
        assert image_files("inaturalist", 12, 16, unreadable="skip").fingerprint == left.fingerprint


@pytest.mark.parametrize("cache", ["", "cache"])
@pytest.mark.parametrize("target", ["../nowhere.jpg", "gone.jpg"])
def test_a_link_that_leads_nowhere_or_to_itself_is_an_image_that_cannot_be_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch, cache: str, target: str
) -> None:
    monkeypatch.setenv("TOPK_CACHE", str(folder / cache) if cache else "")
    whole = image_files("inaturalist", 12, 16)
    train = folder / "inaturalist" / "train"
    (sorted(train.iterdir())[0] / "gone.jpg").symlink_to(target)
    with pytest.warns(UserWarning, match=r"1 of \d+ images of .* left out: train/.*gone\.jpg"):
        left = image_files("inaturalist", 12, 16, unreadable="skip")
    assert len(left.train) + len(left.validation) == len(whole.train) + len(whole.validation)


@pytest.mark.parametrize("spoiled", [(-1,), (0,), (0, 1, 2, 3)])
def test_a_class_without_a_readable_training_image_is_refused(folder: Path, spoiled: tuple[int, ...]) -> None:
    """Without its last class the data would have a class less."""
    classes = sorted(path for path in (folder / "inaturalist" / "train").iterdir() if path.is_dir())
    for picture in (picture for number in spoiled for picture in classes[number].iterdir()):
        picture.write_bytes(b"no picture")
    named = re.escape(", ".join(classes[number].name for number in spoiled))
    with (
        pytest.warns(UserWarning, match="left out"),
        pytest.raises(UserError, match=f"a training image that can be read, got none of {named}"),
    ):
        image_files("inaturalist", 12, 16, unreadable="skip")


def test_a_fingerprint_is_of_the_list(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names, sizes and labels count, and how images are cut; neither pixels nor where they lie."""
    first = image_files("inaturalist", 12, 16).fingerprint
    shutil.copytree(folder, tmp_path / "elsewhere", ignore=shutil.ignore_patterns(".topk"))
    monkeypatch.setenv("TOPK_DATA", str(tmp_path / "elsewhere"))
    monkeypatch.setattr("topk_platform.data.images.in_files.scaled", refuse)
    assert image_files("inaturalist", 12, 16).fingerprint == first
    others = {image_files("inaturalist", size, resize).fingerprint for size, resize in ((12, 17), (11, 16))}
    assert len({first, *others}) == 3
    path = min((tmp_path / "elsewhere" / "inaturalist" / "test").rglob("*.jpg"))
    path.rename(path.with_name("renamed.jpg"))
    renamed = image_files("inaturalist", 12, 16).fingerprint
    with (path.with_name("renamed.jpg")).open("ab") as file:
        file.write(b"\0")
    shutil.rmtree(tmp_path / "elsewhere" / ".topk")
    assert len({first, renamed, image_files("inaturalist", 12, 16).fingerprint}) == 3


def test_files_hold_what_memory_does(folder: Path) -> None:
    """Of the same folder: the same splits, and the same pixels where nothing is cut off."""
    lazy, eager = image_files("inaturalist", 16, 16, validation=0.2), image_folder("inaturalist", 16, 0.2)
    for name in ("train", "validation", "test"):
        one, other = getattr(lazy, name), getattr(eager, name)
        assert torch.equal(one.labels, other.labels)
        assert torch.equal(torch.cat(list(one.in_order(7))), other.tensor)
    assert (lazy.shape, lazy.classes) == (eager.shape, eager.classes)


@pytest.mark.parametrize("condition", [LabelNoise(0.5), LongTail(3), TrainFraction(0.5), PerClass(3)])
def test_conditions_read_no_image(
    folder: Path, monkeypatch: pytest.MonkeyPatch, condition: LabelNoise | LongTail
) -> None:
    monkeypatch.setattr("topk_platform.data.images.in_files.scaled", refuse)
    monkeypatch.setattr(in_files, "decoded", refuse)
    lazy, eager = image_files("inaturalist", 16, 16), image_folder("inaturalist", 16)
    changed, same = (
        apply_conditions(data, [condition], lambda role: torch.Generator().manual_seed(3))
        for data in (lazy, eager)
    )
    assert torch.equal(changed.train.labels, same.train.labels)
    assert isinstance(changed.train.inputs, Images)
    kept = set(changed.train.inputs.names)
    assert kept <= set(lazy.train.inputs.names)  # type: ignore[union-attr]
    assert changed.test.inputs is lazy.test.inputs


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: image_files("inaturalist", 17, 16), "resize must be at least size = 17"),
        (lambda: image_files("inaturalist", 0, 16), "size must be"),
        (lambda: image_files("inaturalist", unreadable="ignore"), "unreadable must be"),
    ],
)
def test_bad_options_are_refused(folder: Path, make: Callable[[], object], named: str) -> None:
    with pytest.raises(UserError, match=named):
        make()


def test_a_wrong_number_of_decoders_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPK_DECODERS", "many")
    with pytest.raises(UserError, match="TOPK_DECODERS must be"):
        decoding.decoders()
