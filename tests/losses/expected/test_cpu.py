"""The compiled exact expectation on the CPU, against fine grids over all classes and the plain path in float64."""

import numpy as np
import pytest
import torch
from gradients import with_gradient
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from topk_losses import use_backend
from topk_losses._core import numba
from topk_losses._expected import cpu
from topk_losses._expected.plain import below_largest
from topk_losses.functional import expected_topk, noised_topk_hinge

pytestmark = pytest.mark.skipif(not numba.is_there(), reason="needs Numba")
BOUNDS = {torch.float32: 5e-7, torch.float64: 1e-9}  # of both; what is promised is 1e-6 and 1e-8


def by_all_classes(row, k, nodes=601):
    """Value and probabilities in units of ε: class by class on a fine grid, forwards and backwards."""
    ordered = np.sort(row)[::-1]
    t = np.linspace(ordered[k - 1] - 9, ordered[k - 1] + 9, nodes)
    exceed, density = stats.norm.sf(t - row[:, None]), stats.norm.pdf(t - row[:, None])
    fewer = np.zeros((k, nodes))
    fewer[0] = 1
    before = []
    for p in exceed:
        before.append(fewer)
        fewer = (1 - p) * fewer + p * np.vstack([np.zeros(nodes), fewer[:-1]])
    value = t[-1] - np.trapezoid(fewer.sum(0), t)
    rest = np.zeros((k, nodes))  # exactly k - 1 - m of those behind
    rest[-1] = 1
    shares = np.zeros(len(row))
    for i in reversed(range(len(row))):
        shares[i] = np.trapezoid(density[i] * (before[i] * rest).sum(0), t)
        rest = (1 - exceed[i]) * rest + exceed[i] * np.vstack([rest[1:], np.zeros(nodes)])
    return value, shares


def value_and_gradient(rows, k, epsilon):
    assert cpu.refusal(rows, k, epsilon) is None
    return with_gradient(lambda s: expected_topk(s, k, epsilon), rows)


def assert_is_that_of_all_classes(row, k, epsilon=1.0):
    """In either precision, of scores that both have."""
    rounded = torch.as_tensor(row * epsilon).float()
    exact, shares = by_all_classes(rounded.double().numpy() / epsilon, k)
    for dtype, bound in BOUNDS.items():
        scores = rounded[None].to(dtype)
        result = cpu.levels(scores, k, epsilon)
        shift, _ = cpu.NumbaExpected(k, epsilon, result, labelled=False)._expectations(
            scores, with_slope=True
        )
        value = (result.centre / epsilon + shift).item()
        gradient = value_and_gradient(scores, k, epsilon)[1][0]
        assert value == pytest.approx(exact, abs=bound)
        np.testing.assert_allclose(gradient.double().numpy(), shares, rtol=0, atol=bound)


def shapes(k):
    """Rows of up to a few hundred classes: spread, equal, in crowds above, at and below the k-th."""
    random = np.random.default_rng(k)
    return {
        "spread": 3 * random.standard_normal(300),
        "close": 0.5 * random.standard_normal(400),
        "equal": np.zeros(16 * k + 200),
        "reached rarely": np.concatenate([np.full(k, 3.0), [0.0], np.full(400, -3.0)]),
        "distant": np.concatenate([np.full(k, 5.0), [0.0], np.full(8 * k + 200, -5.0)]),
        "steps": np.repeat(-np.arange(8) / 2, 2 * k + 30),
        "just above a crowd": np.concatenate([np.full(4 * k, 0.0), np.full(300, -0.5)]),
        "few": random.standard_normal(k + 1),
    }


@pytest.mark.slow
@pytest.mark.parametrize("k", [1, 2, 6, 21, 65])
def test_value_and_gradient_are_those_of_all_classes(k):
    for row in shapes(k).values():
        assert_is_that_of_all_classes(row, k)


@given(
    row=st.lists(st.sampled_from([-5.0, -0.5, 0.0, 0.25, 4.0]) | st.floats(-12, 12), min_size=1, max_size=24),
    repeats=st.integers(1, 40),
    masked=st.integers(0, 5),
    offset=st.sampled_from([0.0, 1000.0, -1000.0]),
    data=st.data(),
)
def test_equal_masked_and_shifted_scores(row, repeats, masked, offset, data):
    """Ties, masks and offsets, few classes and crowds, against the grid over those that are not masked."""
    scores = np.repeat(np.array(row), repeats) + offset
    k = data.draw(st.integers(1, min(len(scores), 65)))
    full = torch.as_tensor(np.concatenate([np.full(masked, -np.inf), scores]))[None]
    value, gradient = value_and_gradient(full, k, 1.0)
    exact, shares = by_all_classes(scores, k)
    assert value.item() == pytest.approx(exact, abs=2e-9)
    np.testing.assert_allclose(gradient[0, masked:].numpy(), shares, rtol=0, atol=2e-9)
    assert (gradient[0, :masked] == 0).all()


@given(
    spread=st.floats(0, 20), classes=st.integers(65, 400), k=st.integers(1, 65), seed=st.integers(0, 2**31)
)
@example(spread=9.0, classes=102, k=49, seed=14)
@example(spread=15.0, classes=65, k=40, seed=178)
@example(spread=1.0, classes=352, k=1, seed=379)
def test_the_probabilities_sum_to_one(spread, classes, k, seed, rounding):
    """And all is what is promised: the value too, the largest score and the distance from it, each rounded to float32.

    A crowd's classes are interpolated between 8 Chebyshev points on ε/2. At a distance of u from the k-th largest that
    is wrong by ``2 / 8^8 / 8! He_8(u)`` in proportion, 9e-6 at 7 and next to nothing where most of the probability is:
    each is right to 1e-6, the sum of hundreds to 1e-5.
    """
    rows = spread * torch.randn(2, classes, generator=torch.Generator().manual_seed(seed))
    value, gradient = value_and_gradient(rows, k, 1.0)
    assert (gradient >= 0).all()
    slope = value_and_gradient(rows.double(), k, 1.0)[1]
    torch.testing.assert_close(slope.sum(1), torch.ones(2).double(), rtol=0, atol=1e-8)
    torch.testing.assert_close(gradient.double(), slope, rtol=0, atol=1e-6)
    torch.testing.assert_close(gradient.double().sum(1), torch.ones(2).double(), rtol=0, atol=1e-5)
    below = below_largest(rows.double(), k, 1.0)
    exact = rows.amax(1) + below
    assert ((value.double() - exact).abs() <= 1e-6 + rounding(below, exact)).all()


@pytest.fixture
def calls(monkeypatch):
    """How often the kernels were asked."""
    asked, levels = [], cpu.levels

    def counting(*arguments):
        asked.append(arguments)
        return levels(*arguments)

    monkeypatch.setattr(cpu, "levels", counting)
    return asked


def test_who_takes_which_path(calls):
    rows = torch.randn(3, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    value = expected_topk(rows, 4, 0.5)
    hinge = noised_topk_hinge(rows, torch.tensor([0, 1, 2]), 3, 0.5, None)
    assert len(calls) == 2
    plain = [torch.func.vmap(lambda s: expected_topk(s, 4, 0.5))(rows)]
    compiled_graph = torch.compile(lambda s: expected_topk(s, 4, 0.5), backend="eager")
    plain.append(compiled_graph(rows))
    with use_backend("torch"):
        plain.append(expected_topk(rows, 4, 0.5))
        without = noised_topk_hinge(rows, torch.tensor([0, 1, 2]), 3, 0.5, None)
    assert len(calls) == 2
    for other in plain:
        torch.testing.assert_close(value, other, rtol=0, atol=1e-9)
    torch.testing.assert_close(hinge, without, rtol=0, atol=1e-9)


ODD = {"nan": (torch.nan, torch.nan), "inf": (torch.inf, torch.nan), "few": (-torch.inf, -torch.inf)}


def odd_among(good, kind):
    """The rows with an odd one before the last, and what the expected third largest of that is."""
    filler, value = ODD[kind]
    odd = good[:1].clone()
    odd[0, 2 if kind == "few" else 70 :] = filler
    return torch.cat([good[:-1], odd, good[-1:]]), value


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("dtype", BOUNDS)
def test_odd_rows_alone_are_left_to_the_plain_path(kind, dtype):
    """The others' values and gradients are bit for bit what they are without them."""
    good = torch.randn(4, 80, generator=torch.Generator().manual_seed(0), dtype=dtype)
    rows, stated = odd_among(good, kind)
    assert (cpu.levels(rows, 3, 0.2).counts < 0).tolist() == [False, False, False, True, False]
    value, gradient = value_and_gradient(rows, 3, 0.2)
    alone, slope = value_and_gradient(good, 3, 0.2)
    others = [0, 1, 2, 4]
    assert torch.equal(value[others], alone)
    assert torch.equal(gradient[others], slope)
    torch.testing.assert_close(value[3], torch.tensor(stated, dtype=dtype), equal_nan=True)
    one_by_one = [value_and_gradient(row[None], 3, 0.2) for row in good]
    assert torch.equal(value[others], torch.cat([one for one, _ in one_by_one]))
    assert torch.equal(gradient[others], torch.cat([one for _, one in one_by_one]))


def test_rows_that_are_all_odd():
    rows = torch.zeros(3, 80)
    rows[0, 3], rows[1, 2:], rows[2, 0] = torch.nan, -torch.inf, torch.inf
    value, gradient = value_and_gradient(rows, 3, 0.2)
    assert value[[0, 2]].isnan().all()
    assert value[1] == -torch.inf
    assert gradient.shape == rows.shape
