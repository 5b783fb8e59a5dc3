"""Augmentation of batches against torchvision's transforms and against slow oracles.

Distributions are compared at an error rate of 1e-4 a test, with fixed seeds: chi-square tests on counts, two-sample
Kolmogorov-Smirnov tests on shares.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from made_studies import small_study
from scipy import stats
from torch import Generator, Tensor, nn
from torchvision.transforms import v2

from topk_platform import Augmentation, Recipe, Regime, Study, UserError
from topk_platform.data import Dataset, Split
from topk_platform.running.preflight.arm_checks import check_study
from topk_platform.training import LOSSES
from topk_platform.training.steps.augment import augment, crop, cutout, flip, mix
from topk_platform.training.steps.batches import Batches, Normalisation

ERROR = 1e-4
PADDING = 2
HARD_LABELS_ONLY = {"conformal_training", "early_learning", "smooth_topk_svm"}
HEIGHT, WIDTH = 5, 4


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def numbered(count: int = 1) -> Tensor:
    """Images of two channels whose pixels all differ and none is 0."""
    image = torch.arange(1, 2 * HEIGHT * WIDTH + 1).view(1, 2, HEIGHT, WIDTH)
    return image.expand(count, -1, -1, -1).to(torch.uint8)


def all_crops() -> Tensor:
    """Every crop of the numbered image, by its place: a slow oracle."""
    padded = torch.zeros((2, HEIGHT + 2 * PADDING, WIDTH + 2 * PADDING), dtype=torch.uint8)
    padded[:, PADDING : PADDING + HEIGHT, PADDING : PADDING + WIDTH] = numbered()[0]
    places = range(2 * PADDING + 1)
    return torch.stack(
        [padded[:, top : top + HEIGHT, left : left + WIDTH] for top in places for left in places]
    )


def which(images: Tensor, known: Tensor) -> np.ndarray:
    """Which of the known images each one is; every one must be exactly one of them."""
    same = (images[:, None] == known[None]).flatten(2).all(2)
    assert bool((same.sum(1) == 1).all())
    return same.int().argmax(1).numpy()


def torchvisions(transform: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    """Each image through torchvision's own transform of one image."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return torch.stack([transform(image) for image in images])


def assert_one_distribution(ours: np.ndarray, theirs: np.ndarray, values: int) -> None:
    """Ours is uniform, and a contingency table does not tell it from theirs."""
    counts = [np.bincount(result, minlength=values) for result in (ours, theirs)]
    assert stats.chisquare(counts[0]).pvalue > ERROR
    assert stats.chi2_contingency(counts).pvalue > ERROR


def test_crops_are_torchvisions_random_crops() -> None:
    """All 25 places are as likely, in ours and in theirs: 5,000 and 2,500 crops."""
    known = all_crops()
    ours = which(crop(numbered(5000), PADDING, seeded()), known)
    transform = v2.RandomCrop((HEIGHT, WIDTH), padding=PADDING)
    theirs = which(torchvisions(transform, numbered(2500)), known)
    assert_one_distribution(ours, theirs, len(known))


def test_the_images_of_a_batch_are_cropped_each_at_its_own_place() -> None:
    """The places of neighbours in a batch are independent: 25 × 25 pairs, 25,000 of them."""
    places = which(crop(numbered(50_000), PADDING, seeded(3)), all_crops())
    pairs = np.bincount(places[::2] * 25 + places[1::2], minlength=625).reshape(25, 25)
    assert stats.chi2_contingency(pairs).pvalue > ERROR


def test_flips_are_torchvisions_random_flips() -> None:
    known = torch.stack([numbered()[0], numbered()[0].flip(2)])
    ours = which(flip(numbered(4000), seeded()), known)
    theirs = which(torchvisions(v2.RandomHorizontalFlip(), numbered(2000)), known)
    assert_one_distribution(ours, theirs, 2)
    pairs = np.bincount(2 * ours[::2] + ours[1::2], minlength=4).reshape(2, 2)
    assert stats.chi2_contingency(pairs).pvalue > ERROR


def shown(images: Tensor) -> Tensor:
    return (images[:, 0] == 0).flatten(1)


@pytest.mark.parametrize("side", [1, 2, 3, 4])
def test_cutout_hides_a_square_around_any_pixel(side: int) -> None:
    """Against every square there is, written out pixel by pixel; all centres are as likely."""
    squares = torch.zeros((HEIGHT * WIDTH, HEIGHT, WIDTH), dtype=torch.bool)
    for centre in range(HEIGHT * WIDTH):
        top, left = centre // WIDTH - side // 2, centre % WIDTH - side // 2
        for row in range(max(top, 0), min(top + side, HEIGHT)):
            for column in range(max(left, 0), min(left + side, WIDTH)):
                squares[centre, row, column] = True
    images = numbered(4000).float()
    cut = cutout(images, side, seeded(side))
    hidden = shown(cut)
    assert torch.equal(cut, images.masked_fill(hidden.view(-1, 1, HEIGHT, WIDTH), 0))
    distinct, expected = squares.flatten(1).unique(dim=0, return_counts=True)
    result = np.bincount(which(hidden, distinct), minlength=len(distinct))
    assert stats.chisquare(result, 4000 * expected.numpy() / (HEIGHT * WIDTH)).pvalue > ERROR


def batch() -> tuple[Tensor, Tensor]:
    """Four constant images of distinct classes: what a mixture took from where can be read off it."""
    values = torch.tensor([1.0, 2.0, 4.0, 8.0])
    return values.view(4, 1, 1, 1).expand(4, 1, 8, 6), torch.tensor([3, 1, 0, 2])


def our_shares(how: Augmentation, count: int) -> list[float]:
    """λ of mixtures, after each was found to be what it says."""
    images, labels = batch()
    other, hard = images.roll(1, 0), torch.eye(4)[labels]
    generator, shares = seeded(5), []
    for _ in range(count):
        mixed, soft = mix(images, labels, 4, how, generator)
        share = soft[0, 3].item()
        torch.testing.assert_close(soft, share * hard + (1 - share) * hard.roll(1, 0))
        if how.mix == "mixup":
            torch.testing.assert_close(mixed, share * images + (1 - share) * other)
        else:
            pasted = mixed[0, 0] != images[0, 0]
            rows, columns = pasted.any(1), pasted.any(0)
            assert torch.equal(pasted, rows[:, None] & columns)  # one box, the same in all images
            assert int(rows.int().diff().abs().sum()) <= 2 and int(columns.int().diff().abs().sum()) <= 2
            torch.testing.assert_close(mixed, torch.where(pasted, other, images))
            assert share == pytest.approx(1 - pasted.float().mean().item())
        shares.append(share)
    return shares


@pytest.mark.parametrize("alpha", [0.3, 1.0])
@pytest.mark.parametrize(("name", "transform"), [("mixup", v2.MixUp), ("cutmix", v2.CutMix)])
def test_mixtures_are_torchvisions(name: str, transform: type, alpha: float) -> None:
    """Each is what λ says, and λ, for CutMix the area left, is distributed as theirs: 1,500 of each."""
    ours = our_shares(Augmentation(mix=name, mix_alpha=alpha), 1500)
    theirs = transform(alpha=alpha, num_classes=4)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        others = [theirs(*batch())[1][0, 3].item() for _ in range(1500)]
    if name == "mixup":
        assert stats.ks_2samp(ours, others).pvalue > ERROR
        assert stats.kstest(ours, stats.beta(alpha, alpha).cdf).pvalue > ERROR
    else:  # whole pixels, so that rounding tells no two apart; with ties the test errs less often than it says
        pixels = [np.rint(48 * np.array(shares)) for shares in (ours, others)]
        assert stats.ks_2samp(*pixels).pvalue > ERROR


def test_cutmix_pastes_where_torchvision_does() -> None:
    """How often each pixel is pasted, 2,000 boxes each: in standard errors of the difference."""
    images, labels = batch()
    generator, theirs = seeded(6), v2.CutMix(num_classes=4)
    how = Augmentation(mix="cutmix")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        boxes = [
            torch.stack([make(images, labels)[0][0, 0] != images[0, 0] for _ in range(2000)])
            for make in (lambda x, y: mix(x, y, 4, how, generator), theirs)
        ]
    ours, torchs = (each.double().mean(0) for each in boxes)
    share = (ours + torchs) / 2
    error, bound = (share * (1 - share) / 1000).sqrt(), stats.norm.isf(ERROR / 48 / 2)
    assert bool(((ours - torchs).abs() < bound * error).all())


def a_dataset(inputs: Tensor) -> Dataset:
    split = Split(inputs, torch.arange(len(inputs)) % 3)
    return Dataset(split, split, split, classes=3)


def batches(dataset: Dataset, how: Augmentation, size: int = 4, channels_last: bool = False) -> Batches:
    normalisation = Normalisation.of(dataset, "cpu")
    return Batches(dataset.train, 3, size, how, normalisation, seeded(0), seeded(1), channels_last)


def images(count: int = 10) -> Tensor:
    return torch.randint(0, 256, (count, 3, 6, 6), generator=seeded(9), dtype=torch.uint8)


def test_uint8_images_are_normalised_by_their_own_channels_moments() -> None:
    dataset = a_dataset(images(40))
    normalisation = Normalisation.of(dataset, "cpu")
    assert normalisation is not None
    plain = dataset.train.inputs.double() / 255
    mean, std = plain.mean((0, 2, 3)), plain.std((0, 2, 3), correction=0)
    expected = (plain - mean.view(3, 1, 1)) / std.view(3, 1, 1)
    result = normalisation(dataset.train.inputs)
    assert result.dtype == torch.float32
    torch.testing.assert_close(result.double(), expected, rtol=1e-5, atol=1e-5)


def test_a_channel_of_one_colour_stays_finite() -> None:
    normalisation = Normalisation.of(a_dataset(torch.full((4, 1, 2, 2), 7, dtype=torch.uint8)), "cpu")
    assert normalisation is not None
    assert bool(normalisation(torch.full((1, 1, 2, 2), 7, dtype=torch.uint8)).abs().max() < 0.1)


def test_anything_but_uint8_stays_as_it_is() -> None:
    dataset = a_dataset(torch.randn(10, 5, generator=seeded()))
    assert Normalisation.of(dataset, "cpu") is None
    order = torch.randperm(10, generator=seeded(0))
    rows = torch.cat([inputs for inputs, _ in batches(dataset, Augmentation())])
    assert torch.equal(rows, dataset.train.inputs[order])


def test_an_epoch_holds_every_sample_once_with_its_label_in_a_new_order() -> None:
    dataset = a_dataset(torch.arange(10.0)[:, None])
    one = batches(dataset, Augmentation())
    epochs = [[torch.cat(parts) for parts in zip(*one, strict=True)] for _ in range(2)]
    for inputs, labels in epochs:
        assert sorted(inputs.flatten().tolist()) == list(range(10))
        assert torch.equal(labels, inputs.flatten().long() % 3)
    assert not torch.equal(epochs[0][0], epochs[1][0])
    assert len(one) == 3


def test_full_batches_are_copies_in_their_own_order() -> None:
    dataset = a_dataset(torch.arange(10.0)[:, None])
    ((inputs, labels),) = batches(dataset, Augmentation(), size=10)
    assert torch.equal(inputs, dataset.train.inputs) and torch.equal(labels, dataset.train.labels)
    inputs.zero_()
    assert dataset.train.inputs.sum() == 45


def test_a_batch_is_cropped_then_normalised_then_mirrored_cut_out_and_mixed() -> None:
    """Against the functions one after another; a crop's border is black, a cut-out square the mean colour."""
    dataset = a_dataset(images())
    how = Augmentation(crop=1, flip=True, cutout=2, mix="cutmix")
    made = batches(dataset, how, size=10)
    ((inputs, soft),) = made
    changes = seeded(1)
    cropped = crop(dataset.train.inputs, 1, changes)
    assert made.normalisation is not None
    expected = augment(made.normalisation(cropped), how, changes)
    expected, labels = mix(expected, dataset.train.labels, 3, how, changes)
    assert torch.equal(inputs, expected) and torch.equal(soft, labels)
    assert soft.sum(1).tolist() == pytest.approx([1.0] * 10)


def test_channels_last_changes_the_layout_alone() -> None:
    dataset = a_dataset(images())
    how = Augmentation(crop=1, flip=True)
    plain, last = (list(batches(dataset, how, channels_last=choice)) for choice in (False, True))
    for (one, _), (other, _) in zip(plain, last, strict=True):
        assert torch.equal(one, other)
        assert other.is_contiguous(memory_format=torch.channels_last)


def study(loss: str, augmentation: Augmentation, dataset: str = "digits", **options: int) -> Study:
    regime = Regime("r", dataset, options=options)
    return small_study(loss, regimes=[regime], k=2, recipe=Recipe(1, augmentation=augmentation))


def own(**_: object) -> nn.Module:
    return nn.MultiMarginLoss()


@pytest.mark.parametrize("mixture", ["mixup", "cutmix"])
@pytest.mark.parametrize("loss", [*sorted(HARD_LABELS_ONLY), f"{__name__}:own"])
def test_mixtures_are_refused_where_the_loss_takes_no_soft_labels(loss: str, mixture: str) -> None:
    label = loss.rpartition(":")[2]
    with pytest.raises(UserError, match=f"loss {label}: {mixture} makes soft labels, which it does not take"):
        check_study(study(loss, Augmentation(mix=mixture)))


@pytest.mark.parametrize("loss", sorted(set(LOSSES) - HARD_LABELS_ONLY))
def test_mixtures_are_taken_where_the_loss_takes_soft_labels(loss: str) -> None:
    check_study(study(loss, Augmentation(mix="mixup")))


@pytest.mark.parametrize("name", ["crop", "flip", "cutout", "cutmix"])
def test_what_is_for_images_is_refused_for_anything_else(name: str) -> None:
    how = {"mix": name} if name == "cutmix" else {name: True if name == "flip" else 1}
    with pytest.raises(UserError, match=r"are for images .* got inputs of shape \(2,\)"):
        check_study(study("cross_entropy", Augmentation(**how), "ring", per_class=5))
    check_study(study("cross_entropy", Augmentation(mix="mixup"), "ring", per_class=5))
