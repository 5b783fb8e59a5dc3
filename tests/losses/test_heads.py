import copy
import pickle

import pytest
import torch

from topk_losses import CosineHead


def make(*sizes, seed=0, **options):
    return CosineHead(*sizes, generator=torch.Generator().manual_seed(seed), **options)


def test_scores_are_cosines():
    head = make(8, 5, scale=3.0)
    features = torch.randn(4, 2, 8)
    expected = torch.nn.functional.cosine_similarity(features.unsqueeze(-2), head.weight, dim=-1)
    torch.testing.assert_close(head(features), 3 * expected)


def test_lengths_do_not_matter():
    head = make(8, 5)
    features = torch.randn(4, 8)
    cosines = head(features)
    assert cosines.abs().max() <= 1 + 1e-6
    head.weight.data.mul_(100)
    torch.testing.assert_close(head(7 * features), cosines)


def test_gradient_is_the_derivative():
    head = make(4, 3, dtype=torch.float64)
    features = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    inputs = (features, head.weight)
    assert torch.autograd.gradcheck(lambda x, _: head(x), inputs)
    assert torch.autograd.gradgradcheck(lambda x, _: head(x), inputs)


def test_features_of_length_0_give_0_and_a_bounded_gradient():
    head = make(4, 3)
    features = torch.zeros(1, 4, requires_grad=True)
    cosines = head(features)
    cosines.sum().backward()
    assert cosines.abs().max() == 0
    assert features.grad.abs().max() < 10


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype):
    head = make(64, 10)
    features = torch.randn(5, 64).to(dtype)
    torch.testing.assert_close(head(features), head(features.float()), rtol=0, atol=0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(head(features), head(features.float()), rtol=0, atol=0)
    assert make(64, 10, dtype=dtype)(features).dtype == torch.float32


def test_same_generator_same_weights():
    assert torch.equal(make(8, 5).weight, make(8, 5).weight)
    assert not torch.equal(make(8, 5).weight, make(8, 5, seed=1).weight)
    torch.testing.assert_close(make(8, 5).weight.norm(dim=1), torch.ones(5))


def test_copies_give_the_same():
    head = make(8, 5, scale=2.0)
    features = torch.randn(3, 8)
    for twin in (copy.deepcopy(head), pickle.loads(pickle.dumps(head))):  # noqa: S301
        assert torch.equal(twin(features), head(features))
        assert repr(twin) == repr(head) == "CosineHead(in_features=8, classes=5, scale=2.0)"


def test_compiles_to_one_graph():
    head = make(8, 5)
    features = torch.randn(3, 8)
    compiled = torch.compile(head, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(features), head(features))


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (torch.zeros(2, 7), r"features must have 8 columns, got \(2, 7\)"),
        (torch.zeros(2, 8).long(), "features must be a floating-point tensor, got torch.int64"),
    ],
)
def test_bad_features_are_named(features, message):
    with pytest.raises(ValueError, match=message):
        make(8, 5)(features)
