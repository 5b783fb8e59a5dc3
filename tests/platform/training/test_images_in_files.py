"""Trials on images in files: they learn, resume bit for bit, and end with a reason where an image is broken."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from image_archives import write_inaturalist
from made_photos import write_photos
from made_studies import small_study
from small_trials import Memory, a_trial, bits, completed, same_weights, trained

from topk_platform import Augmentation, Model, PerClass, Protocol, Recipe, Regime, Study, UserError
from topk_platform.data import data_at, load
from topk_platform.data.images.in_files import scaled
from topk_platform.running.preflight.arm_checks import check_study
from topk_platform.specs import Trial
from topk_platform.testing.standins import write_imagenet_lt, write_plantnet300k
from topk_platform.training.session import Session
from topk_platform.training.steps.batches import Normalisation

SMALL: dict[str, Any] = {"size": 16, "resize": 20}
AUGMENTED = Augmentation(window=True, flip=True)
REGIMES = {
    "imagenet": Regime("r", "imagenet", (PerClass(6),), SMALL | {"classes": 4, "validation": 4}),
    "imagenet_lt": Regime("r", "imagenet_lt", (), SMALL | {"classes": 4}),
    "plantnet300k": Regime("r", "plantnet300k", (), SMALL),
    "inaturalist": Regime("r", "image_files", (), SMALL | {"folder": "inaturalist"}),
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    write_imagenet_lt(folder, train=24, validation=4, test=8)
    write_plantnet300k(folder, train=24, validation=4, test=8)
    write_inaturalist(folder, train=12, test=8)
    return folder


@pytest.fixture(autouse=True)
def folder(data_path: Path, written: Path) -> Path:
    """A copy of the images, some of which tests break."""
    return Path(shutil.copytree(written, data_path, dirs_exist_ok=True))


def recipe(**changes: Any) -> Recipe:
    given = {"epochs": 4, "batch_size": 8, "learning_rate": 0.05, "augmentation": AUGMENTED, **changes}
    return Recipe(**given)


def trial(regime: str = "imagenet", **changes: Any) -> Trial:
    given = {"recipe": recipe(), "model": Model("convnet", {"width": 8}), **changes}
    return a_trial(regime=REGIMES[regime], **given)


@pytest.mark.slow
@pytest.mark.parametrize("regime", list(REGIMES))
def test_each_regime_is_learnt(regime: str) -> None:
    """Of 32 test images in four classes; by chance 8 are right, and 18 or more with a probability below 1e-4."""
    record = completed(trial(regime, recipe=recipe(epochs=24)))
    assert record.test is not None and record.test["top1"] >= 18 / 32
    assert record.epochs[-1].train_loss < record.epochs[0].train_loss


@pytest.mark.parametrize("mix", ["", "mixup"])
def test_a_resumed_trial_goes_on_as_if_nothing_happened(mix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed after a step, of five an epoch, and gone on with in another number of threads: bit for bit the same."""
    augmentation = Augmentation(window=True, crop=1, flip=True, mix=mix)
    wanted = trial(recipe=recipe(epochs=3, batch_size=5, augmentation=augmentation))
    whole = Memory()
    expected = completed(wanted, whole)
    for cut in (1, 4, 5, 13):
        broken = Memory(cut)
        with pytest.raises(KeyboardInterrupt):
            trained(wanted, broken)
        with monkeypatch.context() as patch:
            patch.setenv("TOPK_DECODERS", "3")
            resumed = trained(wanted, broken)
        assert bits(expected) == bits(resumed), f"cut after step {cut}"
        assert same_weights(whole.models[wanted.key], broken.models[wanted.key]), f"cut after step {cut}"


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that are decoded from now on."""
    paths: list[Path] = []

    def noted(path: Path, resize: int) -> Any:
        paths.append(path)
        return scaled(path, resize)

    monkeypatch.setattr("topk_platform.data.images.in_files.scaled", noted)
    return paths


def test_going_on_after_a_pause_decodes_nothing_again(decoded: list[Path]) -> None:
    trained(trial(recipe=recipe(batch_size=5)))
    expected = sorted(decoded)
    decoded.clear()
    keeper = Memory()
    trained(trial(recipe=recipe(batch_size=5)), keeper)
    assert len(keeper.states) == 4 * 5 - 1
    assert sorted(decoded) == expected


@pytest.mark.parametrize("decoders", ["1", "4"])
def test_what_is_decoded_ahead_moves_no_stream(
    decoded: list[Path],
    decoders: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After some batches the stream of augmentation stands where they left it, and the others follow from there."""
    monkeypatch.setenv("TOPK_DECODERS", decoders)
    wanted = trial(recipe=recipe(batch_size=5, augmentation=AUGMENTED))
    for done in range(1, 5):
        one, other = Session.prepare(wanted).batches, Session.prepare(wanted).batches
        source = iter(one)
        for _ in range(done):
            next(source)
        other.changes.set_state(one.changes.get_state())
        rest = list(source)
        decoded.clear()
        result = list(other.after(done))
        assert len(decoded) == len(one.split) - 5 * done
        for pair, again in zip(rest, result, strict=True):
            assert all(map(torch.equal, pair, again))


def test_kept_pixels_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = trained(trial())
    for _ in range(2):
        monkeypatch.setenv("TOPK_CACHE", str(tmp_path / "cache"))
        record = trained(trial())
        assert bits(expected) == bits(record)


def test_windows_are_places_of_the_training_images_alone() -> None:
    """Every batch is in a new order and at new places; what is scored is the middle."""
    session = Session.prepare(trial(recipe=recipe(augmentation=Augmentation(window=True))))
    plain = Session.prepare(trial(recipe=recipe(augmentation=Augmentation())))
    one, again = (torch.cat([inputs for inputs, _ in session.batches]) for _ in range(2))
    middle = torch.cat([inputs for inputs, _ in plain.batches])
    assert one.shape == middle.shape == (24, 3, 16, 16)

    def rows(images: torch.Tensor) -> set[bytes]:
        return {image.contiguous().numpy().tobytes() for image in images}

    # Squares of 16 in images of 20 and more pixels: of 25 places or more each, so two orders share few.
    assert len(rows(one) & rows(again)) < 8 and len(rows(one) & rows(middle)) < 8
    validation = [torch.cat(list(s.dataset.validation.in_order(8))) for s in (session, plain)]
    assert torch.equal(*validation)


def test_batches_come_with_their_labels() -> None:
    session = Session.prepare(trial(recipe=recipe(augmentation=Augmentation(), batch_size=5)))
    split, normalise = session.dataset.train, session.normalisation
    assert normalise is not None
    labelled = zip(torch.cat(list(split.in_order(8))), split.labels, strict=True)
    of = {normalise(image[None]).numpy().tobytes(): int(label) for image, label in labelled}
    for _ in range(2):
        batches = list(session.batches)
        assert [len(labels) for _, labels in batches] == [5, 5, 5, 5, 4]
        rows = [row for pair in batches for row in zip(*pair, strict=True)]
        result = [(image[None].numpy().tobytes(), int(label)) for image, label in rows]
        assert dict(result) == of and len(result) == len(of)


def test_full_batches_are_in_their_own_order() -> None:
    session = Session.prepare(trial(recipe=recipe(augmentation=Augmentation(), batch_size=100)))
    ((inputs, labels),) = list(session.batches)
    assert torch.equal(labels, session.dataset.train.labels)
    normalise = Normalisation.of(session.dataset, "cpu")
    assert normalise is not None
    assert torch.equal(inputs, normalise(torch.cat(list(session.dataset.train.in_order(8)))))


def test_they_are_normalised_as_pretrained_networks_expect() -> None:
    normalise = Normalisation.of(Session.prepare(trial()).dataset, "cpu")
    assert normalise is not None
    grey = normalise(torch.full((1, 3, 1, 1), 51, dtype=torch.uint8)).flatten()
    expected = (0.2 - torch.tensor([0.485, 0.456, 0.406])) / torch.tensor([0.229, 0.224, 0.225])
    torch.testing.assert_close(grey, expected)


def test_an_unreadable_image_is_the_reason_of_a_failed_trial(folder: Path) -> None:
    wanted = trial()
    for path in (folder / "imagenet" / "train").rglob("*.JPEG"):
        path.write_bytes(b"no picture")
    record = trained(wanted)
    assert record.status == "failed"
    assert "UnreadableImageError" in record.reason and ".JPEG cannot be read" in record.reason


@pytest.mark.gpu
def test_batches_on_a_gpu_are_those_on_the_cpu() -> None:
    here, there = (Session.prepare(trial(device=device)) for device in ("cpu", "cuda"))
    rows = torch.split(torch.randperm(len(here.dataset.train)), 5)
    streams = [session.dataset.train.inputs.stream(rows) for session in (here, there)]  # type: ignore[union-attr]
    for one, other in zip(*streams, strict=True):
        assert other.is_cuda and other.is_contiguous()
        assert torch.equal(one, other.cpu())
    completed(trial(device="cuda"))


def study(regime: Regime, recipe: Recipe, ensemble: int = 1) -> Study:
    model = Model("linear") if ensemble > 1 else Model("convnet", {"width": 4})
    how = {"recipe": recipe, "protocol": Protocol(ensemble=ensemble)}
    return small_study(regimes=[regime], models=[model], k=2, **how)


def test_a_study_is_checked_before_it_starts(folder: Path) -> None:
    (checked,) = check_study(study(REGIMES["plantnet300k"], recipe())).values()
    assert checked.dataset_fingerprint == load(REGIMES["plantnet300k"]).fingerprint
    for changed in (recipe(), recipe(augmentation=Augmentation(), test_crops="inclusion")):
        with pytest.raises(UserError, match="window and test_crops are for images in files"):
            check_study(study(Regime("r", "digits"), changed))
    with pytest.raises(UserError, match="is in files and cannot train an ensemble"):
        check_study(study(REGIMES["plantnet300k"], recipe(augmentation=Augmentation()), ensemble=2))


@pytest.mark.parametrize("dataset", ["image_files", "image_folder"])
def test_a_class_whose_name_is_no_text_is_refused_before_any_training(dataset: str, tmp_path: Path) -> None:
    """An archive from another system may hold names in its own encoding. No table of results could be written."""
    write_photos(tmp_path / "cups", map(os.fsdecode, (b"caf\xe9", b"tea")), 3)
    options: dict[str, str | int] = {"folder": "cups", "size": 8}
    options |= {"resize": 8} if dataset == "image_files" else {}
    cups = study(Regime("r", dataset, options=options), Recipe(1))
    with data_at(tmp_path), pytest.raises(UserError, match=r"UTF-8, got 'caf\\udce9': rename their folders"):
        check_study(cups)
