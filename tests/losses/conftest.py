"""Random samples, and the comparison of a loss with its oracle."""

import pytest
import torch
from gradients import with_gradient

from topk_losses import functional, use_backend
from topk_losses.testing import oracles

TRACED = ("test_compiles_to_one_graph", "test_exports_for_any_number_of_rows")
COMPILED = ("TestLabelSmoothing", "TestLDAM", "TestTopKHinge", "TestTopKGrouping")
"""One loss of each kind that is traced within a second: softmax, margins, the K largest, groups."""
TWICE_IN_THEIR_FOLDERS = (
    *("TestSoftTopKLoss", "TestExactNoisedTopKHinge"),
    *("TestSortingTopKCrossEntropy", "TestLogisticSortingTopKCrossEntropy"),
    *("TestExactNoisedImbalancedTopKHinge", "TestBoundedSoftTopK", "TestLaplacianSoftTopK"),
    *("TestGaussianSoftTopK", "TestClippedSoftTopK", "TestCubicSoftTopK", "TestMidpointSoftTopK"),
)
"""Losses whose second derivatives take long, and are checked by a `test_derivatives` of their folders as well."""


def pytest_collection_modifyitems(items):
    """Leave to the slow tests what takes seconds: compiling every other loss, and some second derivatives."""
    for item in items:
        name, kind = getattr(item, "originalname", ""), getattr(item, "cls", None)
        if kind and name in TRACED and kind.__name__ not in COMPILED:
            item.add_marker("slow")
        if kind and name == "test_second_derivative" and kind.__name__ in TWICE_IN_THEIR_FOLDERS:
            item.add_marker("slow")


@pytest.fixture
def plain_torch():
    """No kernels, whatever is installed."""
    with use_backend("torch"):
        yield


@pytest.fixture(params=["compiled", "plain torch"])
def way(request):
    """Once with the kernels that Numba compiles, once with torch alone."""
    if request.param == "plain torch":
        request.getfixturevalue("plain_torch")
    return request.param


@pytest.fixture(scope="session")
def rounding():
    """A function of terms: how far their sum lies from the exact one at most, each having been rounded to float32.

    By half a unit in its last place, ``2^-24 |x|``. A bound without it holds for small scores alone.
    """
    return lambda *terms: 2.0**-24 * sum(abs(term) for term in terms)


@pytest.fixture
def sample():
    """A function of rows, classes, spread and seed: float64 scores ``(rows, classes)`` and labels."""

    def draw(rows, classes, spread=2.0, seed=0):
        generator = torch.Generator().manual_seed(seed)
        scores = spread * torch.randn(rows, classes, generator=generator, dtype=torch.float64)
        return scores, torch.randint(classes, (rows,), generator=generator)

    return draw


@pytest.fixture
def assert_matches_oracle(sample):
    """Loss and gradient of ``functional.<name>`` and ``oracles.<name>`` agree to 1e-10, hard and soft."""

    def check(name, classes, parameters, soft=True, rows=24):
        scores, target = sample(rows, classes)
        function, oracle = getattr(functional, name), getattr(oracles, name)

        def expected(s):
            return oracles.rowwise(oracle, s, target, **parameters)

        def actual(s):
            return function(s, target, **parameters, reduction="none")

        agree(actual, expected, scores)
        if soft:
            shares = sample(rows, classes, seed=1)[0].softmax(1)
            labels = [torch.full_like(target, c) for c in range(classes)]
            agree(
                lambda s: function(s, shares, **parameters, reduction="none"),
                lambda s: sum(
                    shares[:, c] * oracles.rowwise(oracle, s, label, **parameters)
                    for c, label in enumerate(labels)
                ),
                scores,
            )

    def agree(actual, expected, scores):
        ours, theirs = with_gradient(actual, scores), with_gradient(expected, scores)
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)
        # As in validation, where kernels compute no gradient.
        torch.testing.assert_close(actual(scores), theirs[0], rtol=1e-10, atol=1e-10)

    return check
