"""Each operation of the policies is torchvision's, and each image of a batch has its own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from scipy import stats
from torchvision.transforms import InterpolationMode, v2

from topk_platform import (
    RandAugment,
    TrivialAugment,
    UserError,
)
from topk_platform.training.steps.policies import OPERATIONS, _strengths, changed

ROUNDED = {"Color", "Sharpness"}  # blends, whose sums torch rounds in another order


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (3, 20, 33)])
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_is_torchvisions_at_every_strength(name: str, shape: tuple[int, int, int]) -> None:
    images = torch.randint(256, (6, *shape), generator=generator(), dtype=torch.uint8)
    operation = OPERATIONS[name]
    vision: Any
    for vision, wide in ((v2.RandAugment(num_ops=1), False), (v2.TrivialAugmentWide(), True)):
        magnitudes, signed = vision._AUGMENTATION_SPACE[name]
        magnitudes = magnitudes(31, *shape[1:])
        assert bool(signed) == operation.signed
        for level in (0, 3, 9, 17, 30):
            for sign in (1, -1) if signed else (1,):
                strength = 0.0 if magnitudes is None else float(magnitudes[level]) * sign
                expected = vision._apply_image_or_video_transform(
                    images, name, strength, interpolation=InterpolationMode.NEAREST, fill={torch.Tensor: None}
                )
                own = _strengths(name, torch.full((6,), level), shape[1:], wide) * sign
                result = operation.change(images, own)
                apart = (result.int() - expected.int()).abs()
                if name in ROUNDED:
                    assert apart.max() <= 1 and (apart > 0).double().mean() < 0.06
                else:
                    assert torch.equal(result, expected), (wide, level, sign)


def test_they_are_all_of_torchvisions_operations() -> None:
    for vision in (v2.RandAugment(), v2.TrivialAugmentWide()):
        assert set(vision._AUGMENTATION_SPACE) == set(OPERATIONS)


def test_each_image_has_its_own_operation_sign_and_strength() -> None:
    """All 14 operations are equally likely; an image's own is as if it were alone in its batch."""
    image = torch.randint(256, (1, 3, 16, 16), generator=generator(), dtype=torch.uint8)
    many = changed(image.repeat(7000, 1, 1, 1), TrivialAugment(), generator(1))
    untouched = (many == image).flatten(1).all(1)
    drawn = torch.randint(14, (7000,), generator=generator(1))  # what the policy drew first
    counts = torch.bincount(drawn, minlength=14)
    assert stats.chisquare(counts.numpy()).pvalue > 1e-4
    assert untouched[drawn == 0].all() and not untouched[drawn == 1].all()
    assert len(many[drawn == 6].unique(dim=0)) > 31  # both signs of 31 strengths, 0 twice


def test_a_policy_repeats_from_its_stream_and_a_magnitude_of_0_moves_nothing() -> None:
    images = torch.randint(256, (40, 1, 12, 12), generator=generator(), dtype=torch.uint8)
    policy = RandAugment(operations=3, magnitude=12)
    assert torch.equal(changed(images, policy, generator(2)), changed(images, policy, generator(2)))
    assert not torch.equal(changed(images, policy, generator(2)), changed(images, policy, generator(3)))
    still = changed(images, RandAugment(operations=1, magnitude=0), generator(4))
    drawn = torch.randint(14, (40,), generator=generator(4))
    kept = drawn <= 10  # all but Solarize, AutoContrast and Equalize, which no magnitude weakens
    assert torch.equal(still[kept], images[kept])


@pytest.mark.parametrize(
    "made", [lambda: RandAugment(0), lambda: RandAugment(2, 31), lambda: RandAugment(2, 1.5)]
)
def test_wrong_policies_are_refused(made: Any) -> None:
    with pytest.raises(UserError, match="RandAugment"):
        made()
