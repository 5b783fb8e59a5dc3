"""What holds on the CPU holds on a GPU, up to the order of sums."""

from __future__ import annotations

import pytest
import torch
from gradients import nothing_waits
from small_trials import IMAGES_OF_TEN, Memory, a_trial, completed, cut_and_resumed, same_weights, trained

from topk_platform import Augmentation, Model, Numerics, Recipe
from topk_platform.metrics import Scorer
from topk_platform.training import Session, finish, run_trials

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("error:Triton's kernels"),  # that they fail and leave it to torch
]


@pytest.mark.parametrize("loss", ["cross_entropy", "smooth_topk_svm", "calibrated_topk_hinge"])
def test_a_trial_learns_as_on_the_cpu(loss: str) -> None:
    there, here = completed(a_trial(loss, device="cuda")), completed(a_trial(loss))
    assert there.epochs[0].train_loss == pytest.approx(here.epochs[0].train_loss, rel=1e-3)
    # Of 360 digits; one that is scored otherwise moves a small group's accuracy more.
    for metric in ("top1", "top3"):
        assert there.validation[metric] == pytest.approx(here.validation[metric], abs=0.03)


@pytest.mark.parametrize(
    "numerics", [Numerics(), Numerics(bfloat16=True, channels_last=True), Numerics(tf32=True)]
)
def test_images_on_the_device(numerics: Numerics) -> None:
    recipe = Recipe(4, augmentation=Augmentation(crop=4, flip=True, cutout=4), numerics=numerics)
    record = completed(a_trial(regime=IMAGES_OF_TEN, model=Model("convnet"), recipe=recipe, device="cuda"))
    assert record.validation["top3"] > 0.5  # chance is 0.3


def test_an_epoch_waits_for_the_device_once() -> None:
    session = Session.prepare(a_trial("noised_topk_hinge", device="cuda"))
    session.advance()
    torch.cuda.synchronize()
    with nothing_waits():
        session.advance()
        session.validate()


@pytest.mark.parametrize(("loss", "graphs"), [("cross_entropy", False), ("noised_topk_hinge", True)])
@pytest.mark.parametrize("cut", [1, 5, 34, 41])
def test_a_deterministic_trial_repeats_and_resumes_bit_for_bit(cut: int, loss: str, graphs: bool) -> None:
    numerics = Numerics(deterministic=True, cuda_graphs=graphs)
    trial = a_trial(loss, recipe=Recipe(4, numerics=numerics), device="cuda")
    whole, cutting = Memory(), Memory(cut)
    expected = completed(trial, whole)
    (resumed,) = cut_and_resumed([trial], cutting)
    assert resumed.validation == expected.validation
    assert same_weights(whole.models[trial.key], cutting.models[trial.key])


def test_an_ensembles_members_are_their_networks_alone() -> None:
    trials = [a_trial("smooth_topk_svm", seed=seed, device="cuda") for seed in (1, 2, 3)]
    for member, trial in zip(finish(run_trials(trials)), trials, strict=True):
        alone = trained(trial)
        assert member.epochs[-1].train_loss == pytest.approx(alone.epochs[-1].train_loss, rel=1e-4)


def test_sets_are_cut_as_on_the_cpu_where_it_is_to_be_deterministic() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(500, 20, generator=generator)
    labels = torch.randint(20, (500,), generator=generator)
    groups = (torch.zeros(20, dtype=torch.bool),) * 3
    here = Scorer((1,), (), groups, ("autkc3", "average2", "size90"))
    there = Scorer((1,), (), tuple(group.cuda() for group in groups), here.measures)
    torch.use_deterministic_algorithms(True)
    try:
        result = there(scores.cuda(), labels.cuda())
    finally:
        torch.use_deterministic_algorithms(False)
    torch.testing.assert_close(result.cpu(), here(scores, labels), equal_nan=True)
