"""The papers' claims hold of the numbers that the papers printed."""

from __future__ import annotations

import pytest
from shipped import studies

from topk_platform import Claim, Contrast, Study
from topk_studies import STUDIES
from topk_studies.published import read_rows

STUDIES_WITH_CLAIMS = [study for study in studies().values() if study.claims]


def printed(study: Study, contrast: Contrast) -> float | None:
    arms = {arm.name: arm for arm in study.arms}
    result = [(w, study.published_of(arms[name], contrast.metric)) for name, w in contrast.weights.items()]
    values = [weight * number.value for weight, number in result if number is not None]
    return sum(values) if len(values) == len(result) else None


def holds(claim: Claim, value: float) -> bool:
    if claim.direction == "within":
        return abs(value) < claim.tolerance
    if claim.direction == "above":
        return value > claim.bound + claim.tolerance
    return value < claim.bound - claim.tolerance


@pytest.mark.parametrize("study", STUDIES_WITH_CLAIMS, ids=lambda study: study.name)
def test_what_a_paper_printed_is_as_it_is_claimed(study: Study) -> None:
    wrong = [
        (claim.name, contrast, value)
        for claim in study.claims
        for contrast in claim.contrasts
        if (value := printed(study, contrast)) is not None and not holds(claim, value)
    ]
    assert not wrong


def test_most_claims_of_tables_stand_on_printed_numbers() -> None:
    counts = {
        study.name: [printed(study, c) is not None for claim in study.claims for c in claim.contrasts]
        for study in STUDIES_WITH_CLAIMS
        if study.published
    }
    assert {name: (sum(result), len(result)) for name, result in counts.items() if not all(result)} == {
        "sawada2020_cifar100": (39, 55)  # Figure 6 and the candidates are not in its tables
    }


def test_the_claim_on_candidates_holds_of_the_papers_numbers() -> None:
    (claim,) = [c for c in STUDIES["sawada2020_cifar100"]().claims if c.name == "fewer-candidates"]
    numbers = {row.loss: row.value for row in read_rows() if row.metric == "candidates_for_99pct"}
    assert holds(claim, numbers["cross_entropy"] - numbers["topk_transition"])


@pytest.mark.parametrize("name", ["berrada2018_noise", "photos_noise", "photos_pixels"])
def test_claims_on_noise_are_about_every_level_of_it(name: str) -> None:
    study = STUDIES[name]()
    (claim,) = [c for c in study.claims if c.name == "svm-beats-cross-entropy-with-noise"]
    levels = [arm.regime.name for arm in study.arms if arm.regime.name.startswith("noise-")]
    assert {arm.partition("/")[0] for arm in claim.arms} == {*levels} - {levels[0]}
