"""Derivatives of every operator in every mode, and its result whatever the default device."""

import pytest
import torch
from gradients import with_gradient

from topk_losses import operators

SHAPES = ("logistic", "laplace", "gaussian", "clip", "power", "midpoint")
NOISE = torch.randn(4, 3, 7, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
OPERATORS = {
    "expected_topk": lambda s: operators.expected_topk(s, 2, 0.5),
    "lapsum_topk": lambda s: operators.lapsum_topk(s, 2, 0.7),
    "noised_topk": lambda s: operators.noised_topk(s, 2, 0.5, samples=4, noise=NOISE),
    "drawn": lambda s: operators.noised_topk(s, 2, 0.5, 4, generator=torch.Generator().manual_seed(0)),
    "inclusion_probabilities": lambda s: operators.inclusion_probabilities(s, 2, 0.7),
    "log_elementary_symmetric": lambda s: operators.log_elementary_symmetric(s, 2),
    **{shape: lambda s, shape=shape: operators.soft_topk(s, 2, 1.3, shape) for shape in SHAPES},
}


def scores():
    return torch.randn(3, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_every_operator_is_tested():
    assert set(operators.__all__) <= {*OPERATORS, "soft_topk"}


@pytest.mark.parametrize("name", OPERATORS)
def test_derivatives_in_both_modes(name):
    function = OPERATORS[name]
    assert torch.autograd.gradcheck(function, scores().requires_grad_(), check_forward_ad=True)

    def total(s):
        return (function(s) ** 2).sum()

    expected = torch.autograd.functional.hessian(total, scores())
    if name != "drawn":  # inside torch.func torch draws other noise than kernels do
        torch.testing.assert_close(torch.func.hessian(total)(scores()), expected)


OF_ANY_SHAPE = [name for name in OPERATORS if name not in ("noised_topk", "drawn")]


@pytest.mark.parametrize("name", OF_ANY_SHAPE)
def test_leading_dimensions_precisions_and_vmap(name):
    function, models = OPERATORS[name], torch.stack([scores(), scores() + 1])
    each = torch.stack([function(model) for model in models])
    torch.testing.assert_close(function(models), each)
    torch.testing.assert_close(function(scores()[0]), each[0, 0])
    torch.testing.assert_close(torch.func.vmap(function)(models), each)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        rounded = scores().to(dtype)
        result = function(rounded)
        assert result.dtype == torch.float32
        torch.testing.assert_close(result.double(), function(rounded.double()), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", OF_ANY_SHAPE)
def test_masked_classes_count_for_nothing_and_an_invalid_row_is_nan_alone(name):
    function, expected = OPERATORS[name], OPERATORS[name](scores())
    result = function(torch.cat([scores(), torch.full((3, 2), -torch.inf)], 1))
    if expected.ndim == 2:
        assert (result[:, 7:] == 0).all()
        result = result[:, :7]
    torch.testing.assert_close(result, expected)
    for special in (torch.nan, torch.inf) if name in SHAPES else (torch.nan,):
        leaf = scores().index_put((torch.tensor(1), torch.tensor(2)), torch.tensor(special).double())
        value = function(leaf.requires_grad_())
        assert value[1].isnan().any()
        torch.testing.assert_close(value[::2], expected[::2])
        assert torch.autograd.grad(value[::2].sum(), leaf)[0][::2].isfinite().all()


@pytest.mark.parametrize(
    "name",
    [
        "lapsum_topk",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("logistic", "inclusion_probabilities")),
    ],
)
def test_operators_compile_to_one_graph(name):
    torch._dynamo.reset()
    compiled = torch.compile(OPERATORS[name], fullgraph=True, backend="aot_eager")
    ours, theirs = (
        with_gradient(lambda s, f=f: f(s).square(), scores()) for f in (compiled, OPERATORS[name])
    )
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("name", OPERATORS)
def test_default_device_changes_nothing(name):
    rows = scores()
    expected = with_gradient(OPERATORS[name], rows)
    with torch.device("meta"):
        assert all(map(torch.equal, with_gradient(OPERATORS[name], rows), expected))


def test_noise_is_the_same_for_all_directions_and_of_each_model_as_vmap_says():
    models = torch.stack([scores(), scores() + 1])

    def drawn(randomness):
        generator = torch.Generator().manual_seed(0)

        def function(s):
            return operators.noised_topk(s, 2, 0.5, 4, generator=generator)

        return torch.func.vmap(function, randomness=randomness)(models)

    same, different = drawn("same"), drawn("different")
    torch.testing.assert_close(same[1], same[0] + 1)
    assert (different[1] - different[0] - 1).abs().min() > 1e-3
    torch.testing.assert_close(different[0], same[0])
    with pytest.raises(RuntimeError, match="randomness"):
        drawn("error")
