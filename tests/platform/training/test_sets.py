"""Measures of sets and the area under the top-k curve: against slow oracles, and never cut by what is tested."""

from __future__ import annotations

import dataclasses
import math
from itertools import combinations
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_trials import a_trial
from torch import Tensor

from topk_platform.data import Split
from topk_platform.metrics import Scorer, cut_of, inside, log_probabilities, topk_credit
from topk_platform.specs import Measure, Trial
from topk_platform.training import finish, run_trials
from topk_platform.training.scoring import Scored
from topk_platform.training.session import Session

ASKED = ("autkc3", "average2", "size90")

tables = st.integers(2, 4).flatmap(
    lambda classes: st.lists(
        st.tuples(
            st.lists(st.integers(0, 2), min_size=classes, max_size=classes), st.integers(0, classes - 1)
        ),
        min_size=1,
        max_size=4,
    )
)
"""Samples of few classes: values of all classes, many of them equal, and the true class."""


def tensors(rows: list[tuple[list[int], int]]) -> tuple[Tensor, Tensor]:
    values, labels = zip(*rows, strict=True)
    return torch.tensor(values).double(), torch.tensor(labels)


@given(tables, st.integers(1, 4))
def test_average_sets_are_the_expectation_over_tie_breaks(rows: list[tuple[list[int], int]], k: int) -> None:
    """Of the classes that equal the last one in, every choice of so many is as likely."""
    values, labels = tensors(rows)
    k = min(k, values.shape[1])
    places = [(i, j) for i in range(len(rows)) for j in range(values.shape[1])]
    last = sorted((rows[i][0][j] for i, j in places), reverse=True)[k * len(rows) - 1]
    sure = {(i, j) for i, j in places if rows[i][0][j] > last}
    tied = [(i, j) for i, j in places if rows[i][0][j] == last]
    chosen = [sure | set(more) for more in combinations(tied, k * len(rows) - len(sure))]
    assert all(len(members) == k * len(rows) for members in chosen)
    expected = [sum((i, label) in members for members in chosen) for i, (_, label) in enumerate(rows)]
    cut = cut_of(values, labels, Measure("average", k))
    own = values.gather(1, labels[:, None])[:, 0]
    assert inside(own, cut).tolist() == pytest.approx([count / len(chosen) for count in expected])
    assert inside(values, cut).sum().item() == pytest.approx(k * len(rows))


@given(tables, st.sampled_from([50, 75, 90]))
def test_conformal_sets_hold_the_quantile_and_its_equals(
    rows: list[tuple[list[int], int]], percent: int
) -> None:
    values, labels = tensors(rows)
    own = sorted((row[label] for row, label in rows), reverse=True)
    rank = math.ceil((len(rows) + 1) * percent / 100)
    least = own[rank - 1] if rank <= len(rows) else -math.inf
    expected = [[float(value >= least) for value in row] for row, _ in rows]
    assert inside(values, cut_of(values, labels, Measure("size", percent))).tolist() == expected


def test_conformal_sets_hold_the_truth_of_other_samples_as_often_as_said() -> None:
    """Means over 400 splits: coverage lies between p and p + 1 / (n + 1), give or take 4 standard errors."""
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(400, 300, 6, generator=generator)
    labels = (scores - torch.empty_like(scores).exponential_(generator=generator).log()).argmax(-1)
    chosen, tested = (scores[:, :100], labels[:, :100]), (scores[:, 100:], labels[:, 100:])
    scorer = Scorer((1,), (), (), ("size90",)).cut_by(*chosen)
    result = scorer(*tested)[:, scorer.names.index("coverage90") - len(scorer.names)]
    error = result.std().item() / math.sqrt(len(result))
    assert 0.9 - 4 * error < result.mean().item() < 0.9 + 1 / 101 + 4 * error


def values_of(scorer: Scorer, scores: Tensor, labels: Tensor) -> dict[str, float]:
    groups = (torch.zeros(scores.shape[-1], dtype=torch.bool),) * 3
    return scorer.named(dataclasses.replace(scorer, groups=groups)(scores, labels).tolist())


@given(st.integers(1, 20), st.integers(2, 6), st.integers(1, 6), st.integers(0, 1000))
def test_the_curves_area_is_the_mean_of_its_accuracies(n: int, classes: int, k: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(3, (n, classes), generator=generator).float()
    labels = torch.randint(classes, (n,), generator=generator)
    result = values_of(Scorer((1,), (), (), (f"autkc{k}",)), scores, labels)
    accuracies = [topk_credit(scores, labels, [j]).mean().item() for j in range(1, k + 1)]
    assert result[f"autkc{k}"] == pytest.approx(sum(accuracies) / k)


def test_a_constant_network_gets_chance_and_the_largest_sets() -> None:
    scorer = Scorer((1,), (), (), ("autkc4", "average3", "size90"))
    result = values_of(scorer, torch.zeros(50, 10), torch.arange(50) % 10)
    assert result["autkc4"] == pytest.approx((0.1 + 0.2 + 0.3 + 0.4) / 4)
    assert result["average3"] == pytest.approx(0.3)
    assert (result["size90"], result["coverage90"], result["macro_coverage90"]) == (10, 1, 1)


def test_probabilities_near_one_are_distinguished() -> None:
    """In float32 all of these are 1, and a threshold among them would not be one."""
    scores = torch.stack([torch.tensor([gap, 0.0]) for gap in (20.0, 25.0, 30.0, 35.0)])
    assert len(log_probabilities(scores)[:, 0].unique()) == 4


def test_a_sample_with_a_nan_is_in_no_set_and_spoils_no_other() -> None:
    scores = torch.tensor([[3.0, 0.0, 0.0], [float("nan"), 0.0, 0.0], [0.0, 3.0, 0.0]])
    result = values_of(Scorer((1,), (), (), ("average3", "average1")), scores, torch.tensor([0, 0, 1]))
    assert result["average3"] == pytest.approx(2 / 3)
    assert result["average1"] == pytest.approx(2 / 3)


def test_a_stack_is_measured_as_each_of_its_networks() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(4, (3, 40, 6), generator=generator).float()
    labels = torch.randint(6, (3, 40), generator=generator)
    scorer = Scorer((1,), (), (), ASKED)
    alone = [scorer(*pair) for pair in zip(scores, labels, strict=True)]
    torch.testing.assert_close(scorer(scores, labels), torch.stack(alone), rtol=0, atol=0)
    cut = scorer.cut_by(scores, labels)
    alone = [scorer.cut_by(*pair)(*pair) for pair in zip(scores, labels, strict=True)]
    torch.testing.assert_close(cut(scores, labels), torch.stack(alone), rtol=0, atol=0)


def parts(split: Split) -> list[Split]:
    half = len(split.labels) // 2
    return [Split(split.tensor[rows], split.labels[rows]) for rows in (slice(half), slice(half, None))]


def test_the_test_split_decides_no_threshold() -> None:
    """What is told of two halves of it adds up to what is told of the whole; cut by themselves they do not."""
    session = Session.prepare(a_trial(measures=ASKED))
    session.advance()
    scorer, whole = session.scorer, session.dataset

    def tested(test: Split) -> tuple[int, dict[str, float]]:
        session.dataset = dataclasses.replace(whole, test=test)
        result = session.test(0, session.weights())
        return len(test), scorer.named(result.measures[1:].tolist())

    (_, all_), halves = tested(whole.test), [tested(part) for part in parts(whole.test)]
    itself = scorer.named(
        scorer(session.test(0, session.weights()).scores, session.dataset.test.labels).tolist()
    )
    for name in ("autkc3", "average2", "size90", "coverage90"):
        mean = sum(n * values[name] for n, values in halves) / len(whole.test)
        assert mean == pytest.approx(all_[name], abs=1e-9), name
    assert itself["size90"] != pytest.approx(halves[1][1]["size90"], abs=1e-9)


def test_sets_are_cut_by_the_validation_split_of_the_weights_that_are_tested() -> None:
    session = Session.prepare(a_trial(measures=ASKED))
    before = session.weights()
    session.advance()
    after = session.test(0, before)  # which leaves the network with them
    logs = log_probabilities(session.model.eval()(session.dataset.validation.tensor).detach())
    cut = cut_of(logs, session.dataset.validation.labels, Measure("average", 2))
    own = log_probabilities(after.scores).gather(1, session.dataset.test.labels[:, None])[:, 0]
    result = session.scorer.named(after.measures[1:].tolist())
    assert result["average2"] == pytest.approx(inside(own, cut).mean().item(), abs=1e-12)


def test_scores_averaged_over_crops_are_cut_as_probabilities() -> None:
    generator = torch.Generator().manual_seed(0)
    sums = torch.rand(20, 4, generator=generator)
    sums = 10 * sums / sums.sum(1, keepdim=True)
    result = Scored(torch.zeros(1), sums, Split(sums, torch.zeros(20, dtype=torch.long)), (), averaged=True)
    torch.testing.assert_close(log_probabilities(result.logits).exp(), sums.double() / 10)


@pytest.mark.parametrize("together", [(), (1, 2)])
def test_asking_changes_nothing_else(together: tuple[int, ...]) -> None:
    def record(**changes: Any) -> Any:
        trials = [a_trial(seed=seed, together=together, **changes) for seed in together or (1,)]
        return finish(run_trials(trials))[-1]

    plain, asked = record(), record(measures=ASKED)
    more = {*ASKED, "coverage90", "macro_coverage90"}
    assert set(asked.test) - set(plain.test) == set(asked.validation) - set(plain.validation) == more
    for split in ("validation", "test"):
        ours, theirs = getattr(asked, split), getattr(plain, split)
        assert {name: ours[name] for name in theirs} == theirs
    assert asked.trial.key != plain.trial.key
    assert Trial.from_json(asked.trial.to_json()) == asked.trial
