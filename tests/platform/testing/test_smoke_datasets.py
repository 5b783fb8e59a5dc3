"""The stand-ins of smoke runs: written once, read by the datasets' own readers, and regimes like any other."""

from __future__ import annotations

import inspect
import sys
from functools import cache
from pathlib import Path
from typing import ClassVar

import pytest

from topk_platform import LabelNoise, LongTail, Model, Recipe, Regime, TrainFraction
from topk_platform.data import DATASETS, letters, load, read
from topk_platform.specs import STANDINS, Arm, Loss, smoke_arm
from topk_platform.testing import RegimeContract, smoke_datasets
from topk_platform.testing.smoke_datasets import written


@pytest.fixture(scope="module")
def cache_of_contracts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache_of_contracts: Path, request: pytest.FixtureRequest
) -> Path:
    """A folder without data, and an empty cache; the tests of a contract share one, so that images are written once."""
    monkeypatch.setenv("TOPK_DATA", str(tmp_path / "no-data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_of_contracts if request.cls else tmp_path / "cache"))
    monkeypatch.delenv("TOPK_CACHE", raising=False)
    return tmp_path


def regime(dataset: str, classes: int = 8) -> Regime:
    arm = Arm(Regime("r", dataset), Model("convnet"), Loss("cross_entropy"), 5, Recipe(epochs=1))
    return smoke_arm(arm, classes).regime


@pytest.mark.parametrize("dataset", list(STANDINS))
def test_a_standin_takes_its_datasets_options(dataset: str) -> None:
    function, original = getattr(smoke_datasets, dataset), DATASETS[dataset]
    takes, wanted = (inspect.signature(f).parameters for f in (function, original))
    assert set(takes) == set(wanted) | {"classes"}
    assert all(takes[name].default == wanted[name].default for name in wanted)
    assert takes["classes"].default == STANDINS[dataset].classes


@pytest.mark.parametrize("dataset", list(STANDINS))
def test_a_standin_needs_no_data_and_has_its_classes(
    dataset: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The file of kanji, which takes a second, is read once.
    monkeypatch.setattr(sys.modules["topk_platform.data.datasets.characters"], "letters", cache(letters))
    for classes in (8, 12):
        result = load(regime(dataset, classes))
        assert result.classes == classes
        assert len(result.train) < 12 * classes  # type: ignore[union-attr]
    assert not (folder / "no-data").exists()


def test_an_option_that_the_dataset_lacks_is_refused() -> None:
    with pytest.raises(ValueError, match="did you mean 'size'"):
        read(Regime("r", "topk_platform.testing.smoke_datasets:imagenet", options={"sise": 3}))


def test_files_are_written_once(folder: Path) -> None:
    def write(location: Path, train: int) -> Path:
        calls.append(train)
        location.mkdir()
        (location / "file").write_text(str(train))
        return location

    calls: list[int] = []
    (folder / "cache" / "topk" / "standins").mkdir(parents=True)
    places = [written(write, train=number) for number in (1, 2, 1)]
    assert places[0] == places[2] != places[1]
    assert calls == [1, 2]
    assert [location.parent for location in places[:2]] == [folder / "cache" / "topk" / "standins"] * 2


def test_what_was_broken_off_leaves_nothing(folder: Path) -> None:
    def write(location: Path) -> Path:
        (location / "half").mkdir(parents=True)
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        written(write)
    assert list((folder / "cache" / "topk" / "standins").iterdir()) == []


def test_of_several_processes_at_once_the_first_wins(folder: Path) -> None:
    """The second begins, and ends, while the first still writes."""

    def write(location: Path) -> Path:
        calls.append(location)
        location.mkdir(parents=True)
        (location / "file").write_text(f"by {len(calls)}")
        if len(calls) == 1:
            inner.append(written(write))
        return location

    calls: list[Path] = []
    inner: list[Path] = []
    location = written(write)
    assert len(set(calls)) == 2 and inner == [location]
    assert (location / "file").read_text() == "by 2"
    assert list(location.parent.iterdir()) == [location]


class _Smoke(RegimeContract):
    model: ClassVar[Model] = Model("convnet", {"width": 4})


class TestCifar(_Smoke):
    regime = Regime("r", regime("cifar100").dataset, (LabelNoise(0.4),), regime("cifar100").options)


class TestImageNet(_Smoke):
    regime = Regime("r", regime("imagenet").dataset, (TrainFraction(0.5),), regime("imagenet").options)


class TestImageNetLT(_Smoke):
    regime = regime("imagenet_lt")


class TestPlantNet(_Smoke):
    regime = Regime("r", regime("plantnet300k").dataset, (LongTail(2),), regime("plantnet300k").options)


class TestINaturalist(_Smoke):
    regime = regime("inaturalist")
