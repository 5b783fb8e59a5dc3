"""CIFAR-100 from files in its own format."""

from __future__ import annotations

import hashlib
import tarfile
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch
from made_studies import small_study
from torchvision.datasets import CIFAR100

from topk_platform import LabelNoise, Model, Regime, TrainFraction, UserError
from topk_platform.data import DATASETS, Split, cifar100, data_at, data_folder, load
from topk_platform.data.dataset_table import DOWNLOADS
from topk_platform.data.datasets import cifar as module
from topk_platform.data.datasets.cifar import download_cifar100, read_cifar100
from topk_platform.errors import MissingDataError
from topk_platform.running.preflight.arm_checks import check_study
from topk_platform.testing import RegimeContract
from topk_platform.testing.smoke_datasets import write_cifar100


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        """Write nothing."""


def pairs(inputs: np.ndarray, labels: list[int]) -> set[tuple[bytes, int]]:
    return {(image.tobytes(), label) for image, label in zip(inputs, labels, strict=True)}


def of(split: Split) -> set[tuple[bytes, int]]:
    return pairs(split.inputs.numpy(), split.labels.tolist())


def test_splits_hold_every_image_once_with_its_label(tmp_path: Path) -> None:
    """A row of the file is the red, the green, then the blue plane, each row by row."""
    small = write_cifar100(tmp_path)
    data = read_cifar100(small.folder, small.reader)
    assert [len(s) for s in (data.train, data.validation, data.test)] == [900, 100, 200]
    assert data.train.inputs.dtype == torch.uint8 and data.shape == (3, 32, 32)
    planes = small.train["data"].reshape(-1, 3, 32, 32)
    assert of(data.train) | of(data.validation) == pairs(planes, small.train["fine_labels"])
    assert of(data.test) == pairs(small.test["data"].reshape(-1, 3, 32, 32), small.test["fine_labels"])
    assert data.class_counts.tolist() == [9] * 100
    assert torch.bincount(data.validation.labels).tolist() == [1] * 100


def test_superclasses_are_those_of_cifar(tmp_path: Path) -> None:
    small = write_cifar100(tmp_path)
    data = read_cifar100(small.folder, small.reader)
    of = dict(zip(data.class_names, data.superclasses, strict=True))
    assert of["apple"] == of["orange"] != of["bed"] == of["wardrobe"]
    assert of["maple_tree"] == of["willow_tree"] != of["rose"] == of["tulip"]
    assert sorted(Counter(of.values()).values()) == [5] * 20


def test_the_splits_are_fixed(tmp_path: Path) -> None:
    """The same files give the same fingerprint wherever they lie, others another."""
    here, there, other = (
        write_cifar100(tmp_path / name, seed=seed) for name, seed in (("a", 0), ("b", 0), ("c", 1))
    )
    prints = [read_cifar100(small.folder, small.reader).fingerprint for small in (here, there, other)]
    assert prints[0] == prints[1] != prints[2]


def test_the_originals_checksums_hold_for_real_use(data_path: Path) -> None:
    write_cifar100(data_path)
    with pytest.raises(UserError, match="is damaged: a file's md5 is not the original's"):
        cifar100()


def test_a_spoilt_file_is_refused_before_it_is_unpickled(tmp_path: Path) -> None:
    small = write_cifar100(tmp_path)
    with (small.folder / "cifar-100-python" / "train").open("r+b") as file:
        file.write(b"cos\nabort\n(tR.")
    with pytest.raises(UserError, match="is damaged"):
        read_cifar100(small.folder, small.reader)


@pytest.mark.parametrize("lost", ["train", "test", "meta"])
def test_what_is_missing_is_said_with_where_to_get_it(tmp_path: Path, lost: str) -> None:
    small = write_cifar100(tmp_path)
    (small.folder / "cifar-100-python" / lost).unlink()
    with pytest.raises(MissingDataError) as caught:
        read_cifar100(small.folder, small.reader)
    assert f"lacks {lost}." in str(caught.value) and CIFAR100.url in str(caught.value)


def test_one_name_in_another_folder_is_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = {tmp_path / "a": 0, tmp_path / "b": 1}
    smalls = {path: write_cifar100(path, seed=seed) for path, seed in named.items()}
    reads: list[Path] = []

    def small() -> object:
        reads.append(data_folder())
        return read_cifar100(data_folder(), smalls[data_folder()].reader)

    monkeypatch.setitem(DATASETS, "cifar100", small)  # type: ignore[arg-type]
    prints = []
    for folder in (*smalls, *smalls):
        with data_at(folder):
            prints.append(load(Regime("r", "cifar100")).fingerprint)
    assert reads == list(smalls)
    assert prints[:2] == prints[2:] and prints[0] != prints[1]


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[CIFAR100]]:
    """A reader of a small archive that it downloads from this machine."""
    small = write_cifar100(tmp_path / "source")
    path = tmp_path / "cifar-100-python.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        tar.add(small.folder / "cifar-100-python", "cifar-100-python")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()

        class Archived(small.reader):  # type: ignore[misc, name-defined]
            url = f"http://127.0.0.1:{server.server_port}/{path.name}"
            tgz_md5 = hashlib.md5(path.read_bytes()).hexdigest()  # noqa: S324 - as torchvision checks it

        yield Archived
        server.shutdown()


def test_a_download_is_made_once(archive: type[CIFAR100], tmp_path: Path) -> None:
    folder = tmp_path / "new" / "data"
    download_cifar100(folder, archive)
    assert len(read_cifar100(folder, archive).train) == 900
    (tmp_path / "cifar-100-python.tar.gz").unlink()
    download_cifar100(folder, archive)


def test_a_failed_download_is_one_clear_error(archive: type[CIFAR100], tmp_path: Path) -> None:
    (tmp_path / "cifar-100-python.tar.gz").unlink()
    with pytest.raises(UserError, match="cannot be downloaded from"):
        download_cifar100(tmp_path / "data", archive)


def test_a_study_downloads_when_asked_to_and_only_then(
    archive: type[CIFAR100], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = small_study(regimes=[Regime("r", "cifar100")], models=["convnet"])
    monkeypatch.setattr(module, "_reader", lambda: archive)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TOPK_DATA", raising=False)
    with pytest.raises(MissingDataError):
        check_study(study)
    assert not (tmp_path / "data").exists()
    checked = check_study(study, downloads=True)
    fingerprint = read_cifar100(tmp_path / "data", archive).fingerprint
    assert checked[study.arm_id(study.arms[0])].dataset_fingerprint == fingerprint


def test_the_images_of_all_features_are_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regimes of features share one dataset, whatever images they are of."""
    fetched: list[str] = []
    regimes = [Regime(of, "image_features", options={"of": of}) for of in ("cifar100", "imagenet")]
    for of in ("cifar100", "imagenet"):
        monkeypatch.setitem(DOWNLOADS, of, lambda _folder, of=of: fetched.append(of))
    with data_at(tmp_path), pytest.raises(MissingDataError):
        check_study(small_study(regimes=regimes, models=["linear"]), downloads=True)
    assert fetched == ["cifar100", "imagenet"]


class TestCifar(RegimeContract):
    regime = Regime("noisy", "cifar100", (LabelNoise(0.4), TrainFraction(0.5)))
    model = Model("bytes_convnet")

    @pytest.fixture(autouse=True)
    def _small(self, data_path: Path, monkeypatch: pytest.MonkeyPatch, bytes_convnet: None) -> None:
        small = write_cifar100(data_path)
        monkeypatch.setitem(DATASETS, "cifar100", lambda: read_cifar100(data_path, small.reader))
