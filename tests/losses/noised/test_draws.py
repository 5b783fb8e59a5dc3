"""Long rows on the CPU, where only what exceeds a threshold is drawn: the same distribution as the full draw."""

import math

import pytest
import torch
from gradients import with_gradient
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from topk_losses._noised import columns, cpu, draws
from topk_losses._noised import exceedances as thresholds
from topk_losses._noised.exceedances import exceedances, tail_probability, truncated_normal
from topk_losses._noised.kth_largest import kth_largest
from topk_losses._rows.selection import above, grouped
from topk_losses.functional import expected_topk, noised_topk, noised_topk_hinge

DRAWS = 6000
ALPHA = 1e-5  # of every test of a distribution here; there are under 100, so one seed in 1000 would fail


def rows(kind, classes=500):
    """One row of scores, float32, for ε = 0.2."""
    generator = torch.Generator().manual_seed(1)
    row = torch.randn(1, classes, generator=generator)
    return {
        "trained": 3 * row,
        "initial": 0.1 * row,
        "equal": torch.zeros_like(row),
        "between": 0.6 * row,
        "far ahead": torch.cat([row[:, :3] + 50, 0.1 * row[:, 3:]], 1),
        "two levels": torch.where(row > 1, 1.0, 0.0),
    }[kind]


def draw(row, k, seed=0):
    """Values and classes of independent draws."""
    generator = torch.Generator().manual_seed(seed)
    values, slopes = with_gradient(
        lambda s: noised_topk(s, k, 0.2, 1, generator=generator), row.repeat(DRAWS, 1)
    )
    assert ((slopes == 0) | (slopes == 1)).all()
    return values.double(), slopes.argmax(1)


def assert_distributed(values, classes, row, k):
    """Classes against their exact probabilities (χ²), values against full draws (Kolmogorov-Smirnov)."""
    _, shares = with_gradient(lambda s: expected_topk(s, k, 0.2), row.double())
    counts = torch.bincount(classes, minlength=row.shape[1]).double()
    expected = shares[0] * len(values)
    common = expected >= 5
    pairs = [(counts[common], expected[common])]
    if expected[~common].sum() >= 5:
        pairs.append((counts[~common].sum()[None], expected[~common].sum()[None]))
    else:
        assert counts[~common].sum() <= 30
    observed, predicted = (torch.cat(parts) for parts in zip(*pairs, strict=True))
    statistic = ((observed - predicted).square() / predicted).sum().item()
    assert stats.chi2.sf(statistic, max(1, len(observed) - 1)) > ALPHA
    noise = torch.randn(DRAWS, 1, row.shape[1], generator=torch.Generator().manual_seed(9))
    full = (row + 0.2 * noise).topk(k).values[:, 0, -1]
    assert stats.ks_2samp(values.numpy(), full.double().numpy()).pvalue > ALPHA


@pytest.mark.parametrize("k", [1, 6, 20])
@pytest.mark.parametrize("kind", ["trained", "initial", "equal", "between", "far ahead", "two levels"])
def test_classes_and_values_are_those_of_the_full_draw(way, kind, k):
    row = rows(kind)
    assert_distributed(*draw(row, k), row, k)


@pytest.mark.parametrize("spare", [-9, 1, 1e9])  # always completed, at times, and from as deep as can be
@pytest.mark.parametrize("kind", ["trained", "initial", "far ahead"])
def test_the_compiled_threshold_decides_about_the_work_alone(kind, spare, monkeypatch):
    monkeypatch.setattr(cpu, "SPARE", spare)
    row = rows(kind)
    assert_distributed(*draw(row, 6), row, 6)


@pytest.mark.parametrize(
    "settings",
    [
        {"DEPTH": 0.0},  # in half of the draws fewer than k exceed the threshold: completion
        {"DEPTH": 0.0, "GAP": 1.0},  # and many points
        {"GAP": 1.0},
        {"HIGHEST": 0},  # no table
        {"OUTRIGHT": 10.0},  # all leading classes drawn outright
        {"OUTRIGHT": 0.2, "DEPTH": 1.0},  # hardly one, and many points
        {"COLUMNS_AT_ONCE": 1},  # draw by draw
    ],
)
@pytest.mark.parametrize("kind", ["trained", "far ahead"])
def test_thresholds_decide_about_the_work_alone(plain_torch, kind, settings, monkeypatch):
    for name, value in settings.items():
        modules = (thresholds, columns, draws)
        monkeypatch.setattr(next(module for module in modules if hasattr(module, name)), name, value)
    row = rows(kind)
    assert_distributed(*draw(row, 6), row, 6)


def test_too_high_a_threshold_is_completed(plain_torch, monkeypatch):
    """The search's result raised so far that hardly a draw has k exceedances."""
    result = thresholds._height
    monkeypatch.setattr(thresholds, "_height", lambda *arguments: result(*arguments) + 1)
    row = rows("initial")
    assert_distributed(*draw(row, 6), row, 6)


def test_value_and_gradient_are_of_the_same_draws(way):
    """``E[X; i is the k-th largest]`` against full draws, for the classes that are it most: 5 standard errors."""
    row, k = rows("trained"), 3
    values, classes = draw(row, k)
    noise = torch.randn(DRAWS, 1, row.shape[1], generator=torch.Generator().manual_seed(9))
    full = (row + 0.2 * noise).topk(k)
    for label in classes.unique(return_counts=True)[0].tolist():
        ours = torch.where(classes == label, values - values.mean(), 0.0)
        theirs = torch.where(full.indices[:, 0, -1] == label, full.values[:, 0, -1] - values.mean(), 0.0)
        error = (ours.var() / DRAWS + theirs.double().var() / DRAWS).sqrt()
        assert abs(ours.mean() - theirs.mean()) <= 5 * error + 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_noise_survives_an_offset(way, dtype):
    """Mean and spread of the noise as without the offset: 5 standard errors."""
    row = rows("initial").to(dtype)
    scores = torch.cat([row.repeat(DRAWS, 1), row.repeat(DRAWS, 1) + 1000])
    target = torch.zeros(2 * DRAWS, dtype=torch.int64)
    losses = noised_topk_hinge(
        scores, target, 5, samples=1, margin=5.0, generator=torch.Generator().manual_seed(0), reduction="none"
    )
    plain, moved = losses.double().split(DRAWS)
    assert abs(plain.mean() - moved.mean()) < 5 * plain.std() * math.sqrt(2 / DRAWS) + 1e-4


def test_same_generator_same_result_and_no_other_state(way):
    scores = torch.randn(7, 300, generator=torch.Generator().manual_seed(0))
    before = torch.get_rng_state()
    values = [noised_topk(scores, 3, 0.5, 20, generator=torch.Generator().manual_seed(s)) for s in (5, 5, 6)]
    assert torch.equal(values[0], values[1])
    assert not torch.equal(values[0], values[2])
    assert torch.equal(torch.get_rng_state(), before)


def test_special_rows_leave_the_others_alone(way):
    scores = torch.randn(5, 200, generator=torch.Generator().manual_seed(0))
    scores[0, 3], scores[1, 5] = torch.nan, torch.inf
    scores[2, 2:] = -torch.inf
    scores[3, 100:] = -torch.inf
    leaf = scores.clone().requires_grad_()
    value = noised_topk(leaf, 3, 0.1, 50, generator=torch.Generator().manual_seed(0))
    assert value[:2].isnan().all()
    assert value[2] == -torch.inf
    exact = expected_topk(scores[3:], 3, 0.1)
    assert (value[3:] - exact).abs().max() < 0.1  # 7 standard deviations of the noise, over 50 draws
    value[3:].sum().backward()
    assert leaf.grad[3, 100:].abs().max() == 0
    torch.testing.assert_close(leaf.grad[3:].sum(1), torch.ones(2))


def test_equal_values_name_one_class():
    result = columns.Columns(
        scores=torch.zeros(2, 3),
        centre=torch.zeros(2),
        threshold=thresholds.Threshold(torch.zeros(2), 1.0, torch.zeros(2)),
        near=above(grouped(torch.zeros(2, 3), 1), torch.zeros(2)),
        far=above(grouped(torch.zeros(2, 3), 1), torch.ones(2)),
        table=torch.tensor([[2, 1], [0, 2]]),
        table_x=torch.zeros(2, 2),
        k=1,
        epsilon=1.0,
        generator=None,
    )
    values = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    assert result._table_classes(values).tolist() == [2, 2]


@given(count=st.integers(1, 40), data=st.data(), seed=st.integers(0, 1000))
def test_kth_largest_is_that_of_sorting(count, data, seed):
    k = data.draw(st.integers(1, count))
    values = torch.randint(0, 20, (count, 6), generator=torch.Generator().manual_seed(seed)).float()
    assert torch.equal(kth_largest(values, k), values.sort(0, descending=True).values[k - 1])


@given(classes=st.integers(20, 90), k=st.integers(1, 8), seed=st.integers(0, 1000))
def test_candidates_are_what_reaches_the_level(classes, k, seed):
    scores = torch.randint(0, 9, (4, classes), generator=torch.Generator().manual_seed(seed)).float()
    groups = grouped(scores, k)
    ordered = scores.sort(1, descending=True).values
    assert (groups.centre <= ordered[:, k - 1]).all()
    assert torch.equal(groups.largest, ordered[:, 0])
    level = torch.tensor([3.0, 5.0, 8.0, 9.0])
    result = above(groups, level)
    expected = (scores >= level.unsqueeze(1)).nonzero()
    assert (result.rows.diff() >= 0).all()
    places = torch.stack([result.rows, result.classes], 1)
    assert sorted(places.tolist()) == expected.tolist()
    assert torch.equal(result.scores, scores[result.rows, result.classes])


@pytest.mark.parametrize("threshold", [-1.0, 0.5, 3.0])
def test_exceedances_are_those_of_normals(threshold):
    """Their number is binomial, their places a Bernoulli process, their values truncated normals."""
    cells, probability = 300_000, tail_probability(threshold)
    parts = list(exceedances(cells, threshold, torch.Generator().manual_seed(0)))
    places, values = (torch.cat(tensors).numpy() for tensors in zip(*parts, strict=True))
    assert stats.binomtest(len(places), cells, probability).pvalue > ALPHA
    gaps = places[1:] - places[:-1]
    assert gaps.min() >= 1
    assert places.max() < cells
    most = int(3 / probability)
    observed = [(gaps == i).sum() for i in range(1, most)] + [(gaps >= most).sum()]
    predicted = len(gaps) * stats.geom.pmf(range(1, most), probability)
    predicted = [*predicted, len(gaps) - predicted.sum()]
    if min(predicted) >= 5:
        assert stats.chisquare(observed, predicted).pvalue > ALPHA
    else:
        assert stats.kstest(gaps * probability, "expon").pvalue > ALPHA  # rare: nearly exponential
    assert stats.kstest(values, stats.truncnorm(threshold, math.inf).cdf).pvalue > ALPHA


def test_truncated_normals_end_at_their_bound():
    upper = torch.tensor([-3.0, 0.0, 2.0]).repeat(5000, 1)
    values = truncated_normal(upper, torch.Generator().manual_seed(0))
    assert (values <= upper).all()
    for column, bound in zip(values.unbind(1), (-3.0, 0.0, 2.0), strict=True):
        assert stats.kstest(column.numpy(), stats.truncnorm(-math.inf, bound).cdf).pvalue > ALPHA


@pytest.mark.parametrize(("classes", "k"), [(2, 1), (6, 3), (10, 10), (40, 6)])
def test_few_classes_side_by_side_are_those_sorted(plain_torch, classes, k, monkeypatch):
    """The same draws, ordered both ways, rows with NaN, infinities and masked classes among them."""
    scores = torch.randn(600, classes, generator=torch.Generator().manual_seed(0))
    scores[0, 1], scores[1, 0], scores[2, 1] = torch.nan, torch.inf, -torch.inf
    result = {}
    for few in (0, 48):
        monkeypatch.setattr(draws, "FEW_CLASSES", few)
        leaf = scores.clone().requires_grad_()
        value = noised_topk(leaf, k, 0.5, 8, generator=torch.Generator().manual_seed(1))
        result[few] = value.detach(), torch.autograd.grad(value[2:].sum(), leaf)[0]
    for one, other in zip(result[0], result[48], strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
