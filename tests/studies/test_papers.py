"""The papers' studies: settings, published numbers, none lost or invented, and the searches that begin there."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch

from topk_losses.functional import smooth_topk_svm, topk_hinge
from topk_platform import Arm, LabelNoise, PerClass, Published, Recipe, Study
from topk_studies import STUDIES
from topk_studies.published import LEFT_OUT, Row, composed, loss_of, read_rows, rows_of
from topk_studies.recipes import (
    BERRADA2018_CIFAR100,
    BERRADA2018_IMAGENET,
    BERRADA2018_IMAGENET_SVM,
    GARCIN2022_IMAGENET_NOISED,
    SAWADA2020_CIFAR100_CUTOUT,
    SAWADA2020_CIFAR100_MIXUP,
)

PAPERS = ("berrada2018", "garcin2022", "sawada2020")
NAMES = [name for name in STUDIES if name.startswith(PAPERS)]


def arm_of(study: Study, published: Published) -> Arm:
    (arm,) = [arm for arm in study.arms if published.names(arm)]
    return arm


@pytest.mark.parametrize(
    ("name", "arm", "metric", "expected"),
    [
        (
            *("berrada2018_noise", "noise-0.4/densenet40-40/smooth_topk_svm", "top5"),
            (87.39, 0.23, 3, "test", "berrada2018, Tables 1 and 9"),
        ),
        (
            *("garcin2022_epsilon", "clean/densenet40-40/epsilon-0", "top5"),
            (19.38, None, 1, "validation", "garcin2022, Table 2"),
        ),
        (
            *("sawada2020_cifar100", "mixup/densenet121/topk_transition", "top5"),
            (95.18, 0.06, 10, "test", "sawada2020, Table I"),
        ),
    ],
)
def test_published_numbers_are_the_papers(
    name: str, arm: str, metric: str, expected: tuple[object, ...]
) -> None:
    study = STUDIES[name]()
    result = study.published_of(next(a for a in study.arms if a.name == arm), metric)
    assert result is not None
    assert (result.value, result.spread, result.runs, result.split, result.source) == expected


def test_every_printed_number_is_in_one_study_or_left_out_for_a_reason() -> None:
    rows = read_rows()
    left = [row for row in rows if any(rule.holds(row) for rule in LEFT_OUT)]
    listed = [p for name in NAMES for p in STUDIES[name]().published]
    assert (len(rows), len(left), len(listed)) == (178, 30, 148)
    assert all(rule.reason and any(map(rule.holds, rows)) for rule in LEFT_OUT)
    assert all(sum(rule.holds(row) for rule in LEFT_OUT) <= 1 for row in rows)
    wanted = Counter((row.source, row.k, row.value, row.std, row.runs) for row in rows if row not in left)
    result = Counter(
        (p.source, int(p.metric.rpartition("top")[2]), p.value, p.spread, p.runs) for p in listed
    )
    assert result == wanted


def fits(row: Row, published: Published, arm: Arm) -> bool:
    """Whether an arm and its number are what a row says; τ = 0, another loss by name, has a test of its own."""
    without_tau = row.paper == "sawada2020" and row.loss == "smooth_topk_svm"
    # Which is the row's level.
    fixed = {name: value for name, value in arm.loss.fixed.items() if name != "margin"}
    same_loss = arm.loss.name == row.loss and fixed == ({"tau": 1.0} if without_tau else row.parameters)
    return (
        (published.source, published.value, arm.model.label) == (row.source, row.value, row.model)
        and published.metric.endswith(f"top{row.k}")
        and row.k_train in (None, arm.k)
        and (same_loss or row.parameters.get("tau") == 0)
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_numbers_arm_has_what_its_row_says(name: str) -> None:
    study, rows = STUDIES[name](), read_rows()
    for published in study.published:
        assert any(fits(row, published, arm_of(study, published)) for row in rows), published


def described(study: Study) -> dict[str, tuple[str, dict[str, object], int]]:
    """What each label stands for; the same in every regime and model."""
    result = {arm.loss.label: (arm.loss.name, dict(arm.loss.fixed), arm.k) for arm in study.arms}
    for arm in study.arms:
        assert result[arm.loss.label] == (arm.loss.name, dict(arm.loss.fixed), arm.k)
    return result


def regimes(study: Study) -> dict[str, tuple[object, ...]]:
    return {arm.regime.name: arm.regime.conditions for arm in study.arms}


def test_berrada2018s_settings() -> None:
    noise, temperature, imagenet, margin = (STUDIES[f"berrada2018_{part}"]() for part in (
        "noise", "temperature", "imagenet", "margin"
    ))  # fmt: skip
    levels = (0.2, 0.4, 0.6, 0.8, 1.0)
    assert regimes(noise) == {"noise-0.0": (), **{f"noise-{p}": (LabelNoise(p),) for p in levels}}
    assert {arm.recipe for arm in (*noise.arms, *temperature.arms)} == {BERRADA2018_CIFAR100}
    assert {tuple(arm.model.options.values()) for arm in noise.arms} == {(40, 40)}
    assert {tuple(arm.model.options.values()) for arm in temperature.arms} == {(40, 12)}
    parts = {"50-percent": 640, "25-percent": 320, "10-percent": 128, "5-percent": 64}
    assert regimes(imagenet) == {"100-percent": (), **{name: (PerClass(n),) for name, n in parts.items()}}
    for arm in imagenet.arms:
        ours = BERRADA2018_IMAGENET if arm.loss.label == "cross_entropy" else BERRADA2018_IMAGENET_SVM
        assert arm.recipe == ours
    assert described(margin) == {
        f"k{k}-margin-{m}": ("smooth_topk_svm", {"tau": tau, "margin": float(m)}, k)
        for k, tau in ((1, 1.0), (5, 0.1))
        for m in (0, 1)
    }
    assert {(arm.k, arm.recipe.learning_rate, arm.recipe.keep, arm.recipe.test_crops) for arm in margin.arms} == {
        (1, 0.1, ("top1",), ""),
        (5, 1.0, ("top5",), ""),
    }  # fmt: skip
    assert (noise.seeds, imagenet.seeds) == (3, 1)


def test_garcin2022s_settings() -> None:
    epsilon, noise, plants, imagenet = (
        STUDIES[f"garcin2022_{part}"]() for part in ("epsilon", "noise", "plantnet", "imagenet")
    )
    assert list(regimes(noise)) == [f"noise-0.{p}" for p in range(5)]
    assert {arm.loss.fixed.get("samples") for arm in epsilon.arms} == {10}  # also of ε = 0
    for arm in plants.arms:
        assert (arm.loss.head == "cosine") == ("max_margin" in arm.loss.fixed)
        every = tuple(f"macro_top{k}" for k in (1, 3, 5, 10))
        assert arm.recipe.keep == ((arm.metric,) if "-k" in arm.loss.label else every)
        assert arm.model.options == {"architecture": "resnet50", "weights": "IMAGENET1K_V1"}
    noised = ("noised_topk_hinge", {"epsilon": 0.5, "samples": 10}, 1)
    assert described(imagenet)["noised_topk_hinge-k1"] == noised
    weights = {a.recipe.weight_decay for a in imagenet.arms if a.loss.name == "noised_topk_hinge"}
    assert weights == {GARCIN2022_IMAGENET_NOISED.weight_decay}
    assert (epsilon.seeds, noise.seeds, plants.seeds, imagenet.seeds) == (3, 4, 3, 3)


def test_sawada2020s_settings() -> None:
    study = STUDIES["sawada2020_cifar100"]()
    assert described(study)["smooth_topk_svm"] == ("smooth_topk_svm", {"tau": 1.0}, 5)  # no row has a τ
    networks = {arm.model.label: arm.model.name for arm in study.arms}
    assert networks == {"resnet18": "resnet18_small", "densenet121": "densenet121_small"}
    for arm in study.arms:
        ours = SAWADA2020_CIFAR100_MIXUP if arm.regime.name == "mixup" else SAWADA2020_CIFAR100_CUTOUT
        assert arm.recipe == ours
    assert not [
        arm for arm in study.arms if arm.name.startswith("mixup") and arm.loss.name == "smooth_topk_svm"
    ]
    assert (study.seeds, study.topk, study.targets) == (10, tuple(range(1, 11)), (0.99,))


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_searched_and_the_baseline_is_there(name: str) -> None:
    study = STUDIES[name]()
    assert study.device == "cuda"
    assert not any(arm.is_searched for arm in study.arms)
    assert study.size == study.seeds * len(study.arms)
    assert study.baseline in {arm.loss.label for arm in study.arms}


@pytest.mark.parametrize("name", ["berrada2018_temperature", "letters_questions"])
def test_without_temperature_steps_are_those_of_the_limit(name: str) -> None:
    """Six steps of SGD on one layer, by the recipe, from the limit at τ → 0 and from the arm that stands for it."""
    arm, smoothed, *_ = STUDIES[name]().arms
    assert (arm.loss.label, smoothed.loss.label) == ("tau-0", "tau-0.001")
    (recipe, own), papers_recipe = arm.setting({}), smoothed.recipe
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(40, 6, generator=generator, dtype=torch.float64)
    labels = torch.randint(9, (40,), generator=generator)
    start = torch.randn(9, 6, generator=generator, dtype=torch.float64)

    def limit(scores: torch.Tensor) -> torch.Tensor:
        fifth = scores.scatter(1, labels[:, None], -torch.inf).topk(5).values[:, -1]
        return (1 + (fifth - scores.gather(1, labels[:, None])[:, 0]) / 5).relu().mean()

    def steps(loss: object, recipe: Recipe) -> torch.Tensor:
        weight = start.clone().requires_grad_()
        rate, momentum, decay = recipe.learning_rate, recipe.momentum, recipe.weight_decay
        optimizer = torch.optim.SGD([weight], rate, momentum, weight_decay=decay, nesterov=True)
        for _ in range(6):
            optimizer.zero_grad()
            loss(inputs @ weight.T).backward()  # type: ignore[operator]
            if recipe.clip_norm is not None:
                torch.nn.utils.clip_grad_norm_([weight], recipe.clip_norm / 10)  # small, as the inputs are
            optimizer.step()
        return weight.detach()

    papers = steps(limit, papers_recipe)
    ours = steps(lambda s: topk_hinge(s, labels, 5, **own), recipe)
    assert not torch.allclose(papers, start)
    torch.testing.assert_close(ours, papers, rtol=1e-5, atol=1e-6)  # torch's clipping adds 1e-6 to the norm
    smooth = steps(lambda s: smooth_topk_svm(s, labels, 5, tau=1e-7), papers_recipe)
    torch.testing.assert_close(smooth, papers, rtol=1e-5, atol=1e-5)


def test_rows_of_one_arm_must_agree() -> None:
    rows = rows_of("berrada2018", "6")
    (arm,) = STUDIES["berrada2018_temperature"]().only("*/tau-1").arms
    arms = iter([arm, *(Arm(arm.regime, arm.model, loss_of(row, "tau-1"), 5, arm.recipe) for row in rows)])
    with pytest.raises(ValueError, match="two called 'clean/densenet40-12/tau-1'"):
        composed(rows[:2], lambda _: next(arms))


@pytest.mark.parametrize(
    ("name", "paper", "regimes"),
    [
        ("search_cifar100_noise", "berrada2018_noise", 6),
        ("search_cifar100_noise", "garcin2022_noise", 3),  # 0.1 and 0.3 are not searched
        ("search_imagenet", "berrada2018_imagenet", 5),
        ("search_imagenet", "garcin2022_imagenet", 0),  # its regime has another name
        ("search_plantnet", "garcin2022_plantnet", 1),
    ],
)
def test_a_search_begins_with_the_papers_settings(name: str, paper: str, regimes: int) -> None:
    """The first trial of each arm has the values of the paper's arm in the same regime, with the same network."""
    seen = set()
    for arm in STUDIES[name]().arms:
        for theirs in papers_arms(paper, arm):
            ours, fixed = arm.setting(arm.loss.first), theirs.setting({})
            assert {n: ours.own[n] for n in fixed.own} == fixed.own
            for field in ("learning_rate", "weight_decay"):
                assert getattr(ours.recipe, field) == getattr(fixed.recipe, field)
            for field in ("epochs", "batch_size"):
                assert getattr(arm.recipe, field) == getattr(theirs.recipe, field)
            assert arm.model == theirs.model
            seen.add(arm.regime.name)
    assert len(seen) == regimes


def papers_arms(paper: str, arm: Arm) -> list[Arm]:
    """The paper's arms of the same loss, K and regime."""
    wanted = arm.regime, arm.loss.name, arm.k
    return [other for other in STUDIES[paper]().arms if (other.regime, other.loss.name, other.k) == wanted]


def test_each_search_has_its_row_on_the_page() -> None:
    text = (Path(__file__).parents[2] / "docs" / "results" / "papers.md").read_text()
    assert not [name for name in STUDIES if name.startswith("search_") and f"| `{name}` |" not in text]
