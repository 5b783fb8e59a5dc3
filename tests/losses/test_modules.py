import inspect

import pytest
import torch
from gradients import nothing_waits, with_gradient

import topk_losses
from topk_losses import functional

COUNTS = torch.tensor([100, 50, 20, 10, 5])
MARGINS = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5])
WEIGHT = torch.tensor([0.5, 1.0, 2.0, 1.0, 0.0])
PARAMETERS = {
    "LDAM": {"margins": MARGINS, "scale": 10.0},
    "TopKHinge": {"k": 2, "margin": MARGINS},
    "NoisedTopKHinge": {"k": 2, "epsilon": 0.5, "samples": 3, "margin": 0.5},
    "NoisedImbalancedTopKHinge": {"k": 2, "margins": MARGINS, "epsilon": 0.5, "samples": 3, "scale": 10.0},
    "SoftTopKLoss": {"k": 2, "tau": 0.5, "shape": "power", "form": "error"},
    "AUTKC": {"k": 2, "surrogate": "logistic"},
    "SmoothTopKHinge": {"k": 2, "gamma": 0.5, "margin": MARGINS},
    "SortingTopKCrossEntropy": {
        "k": 2,
        "steepness": 1.5,
        "candidates": 4,
        "relaxation": "logistic",
        "mixture": (0.5, 0.5),
    },
    "ActivePassiveLoss": {"alpha": 2.0, "beta": 0.3, "passive": "nnce"},
    "AsymmetricLoss": {"form": "aul", "a": 3.0, "q": 2.0, "alpha": 0.5, "beta": 0.3},
}
"""Parameters of the modules for which :func:`changed` makes none."""
FUNCTIONS = {name.replace("_", ""): name for name in functional.__all__}
GIVEN = {"k": 2, "class_counts": COUNTS, "margins": MARGINS}


def changed(parameter):
    """A value that is not the default, so that a parameter that is not handed on shows."""
    if parameter.name in GIVEN:
        return GIVEN[parameter.name]
    if isinstance(parameter.default, bool):
        return not parameter.default
    return parameter.default / 2 if isinstance(parameter.default, float) else parameter.default


def example(module):
    """The name of a module's function, and parameters for both."""
    own = [p for p in inspect.signature(module).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    given = PARAMETERS.get(module.__name__) or {p.name: changed(p) for p in own}
    return FUNCTIONS[module.__name__.lower()], given


MODULES = {
    name: example(member)
    for name, member in vars(topk_losses).items()
    if isinstance(member, type)
    and issubclass(member, topk_losses.Loss)
    and member not in (topk_losses.Loss, topk_losses.EarlyLearning)
}
"""All but the loss whose module keeps what its function is given."""
SHARED = {"weight": WEIGHT, "ignore_index": 4, "reduction": "sum"}


def make(name, **shared):
    return getattr(topk_losses, name)(**MODULES[name][1], **shared)


def arguments(name):
    scores = torch.randn(8, 5, generator=torch.Generator().manual_seed(0))
    noise = torch.randn(3, 8, 5, generator=torch.Generator().manual_seed(1))
    drawn = {"noise": noise} if name.startswith("Noised") else {}
    return scores, torch.arange(8) % 5, drawn


def compiled(call, *inputs):
    return {
        choice.operation for choice in topk_losses.explain_backend(call, *inputs) if choice.backend == "numba"
    }


@pytest.mark.skipif(topk_losses.backend("cpu") == "torch", reason="needs Numba")
def test_all_kernels_that_the_modules_take_are_warmed_up():
    with topk_losses.use_backend("numba"):
        taken = set().union(*(compiled(make(name), *arguments(name)[:2]) for name in MODULES))
        exact = topk_losses.NoisedTopKHinge(2, samples=None)
        assert taken | compiled(exact, *arguments("CrossEntropy")[:2]) <= compiled(topk_losses.warm_up)


@pytest.mark.parametrize("name", MODULES)
def test_module_is_its_function(name):
    scores, target, drawn = arguments(name)
    function = getattr(functional, MODULES[name][0])
    for shared in ({}, SHARED):
        value = make(name, **shared)(scores, target, **drawn)
        assert torch.equal(value, function(scores, target, **MODULES[name][1], **drawn, **shared))


@pytest.mark.parametrize("name", MODULES)
def test_constructor_has_the_functions_parameters_and_defaults(name):
    function = inspect.signature(getattr(functional, MODULES[name][0])).parameters
    constructor = inspect.signature(getattr(topk_losses, name)).parameters
    own = {key: p for key, p in function.items() if key not in ("scores", "target", "noise", "generator")}
    assert list(constructor) == list(own)
    for key, parameter in own.items():
        assert (constructor[key].default, constructor[key].kind) == (parameter.default, parameter.kind)


def test_constructor_refuses_an_unknown_argument_by_name():
    with pytest.raises(TypeError, match=r"CrossEntropy.*'label_smoothing'"):
        topk_losses.CrossEntropy(label_smoothing=0.1)


def test_representation_names_what_a_constructor_hands_on():
    class Scaled(topk_losses.Loss):
        def __init__(self, scale=2.0, **shared):
            super().__init__(**shared)
            self.scale = scale

    assert repr(Scaled(reduction="sum")) == "Scaled(scale=2.0, ignore_index=-100, reduction='sum')"


@pytest.mark.parametrize("name", MODULES)
def test_representation_names_every_parameter(name):
    text = repr(make(name, weight=WEIGHT))
    for key in inspect.signature(getattr(topk_losses, name)).parameters:
        assert f"{key}=" in text
    assert "weight=tensor(5,)" in text


@pytest.mark.parametrize("name", MODULES)
def test_tensors_are_buffers(name):
    loss = make(name, weight=WEIGHT)
    tensors = {key for key, value in {**MODULES[name][1], "weight": WEIGHT}.items() if torch.is_tensor(value)}
    assert set(dict(loss.named_buffers())) == tensors
    assert not list(loss.parameters())
    scores, target, drawn = arguments(name)
    restored = make(name, weight=torch.ones(5))
    restored.load_state_dict(loss.state_dict())
    assert torch.equal(restored(scores, target, **drawn), loss(scores, target, **drawn))


def test_from_counts():
    ldam = topk_losses.LDAM.from_counts(COUNTS, max_margin=0.3, scale=20.0, ignore_index=2)
    torch.testing.assert_close(ldam.margins, topk_losses.uneven_margins(COUNTS, 0.3))
    assert (ldam.scale, ldam.ignore_index) == (20.0, 2)
    noised = topk_losses.NoisedImbalancedTopKHinge.from_counts(
        COUNTS, k=3, max_margin=0.3, epsilon=0.1, samples=None, scale=60.0, reduction="sum"
    )
    torch.testing.assert_close(noised.margins, ldam.margins)
    assert (noised.k, noised.epsilon, noised.samples, noised.scale) == (3, 0.1, None, 60.0)
    assert noised.reduction == "sum"


@pytest.mark.gpu
@pytest.mark.parametrize("name", MODULES)
def test_cuda_gives_the_cpus_result_without_waiting(name):
    scores, target, drawn = arguments(name)
    loss = make(name, weight=WEIGHT)
    value, gradient = with_gradient(lambda s: loss(s, target, **drawn), scores)
    loss = loss.cuda()
    moved, labels = scores.cuda().requires_grad_(), target.cuda()
    drawn = {key: noise.cuda() for key, noise in drawn.items()}
    loss(moved, labels, **drawn).backward()  # the first call may set up libraries
    moved.grad = None
    with nothing_waits():
        result = loss(moved, labels, **drawn)
        result.backward()
    torch.testing.assert_close(result.cpu(), value, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(moved.grad.cpu(), gradient, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["LDAM", "SmoothTopKSVM", "NoisedImbalancedTopKHinge"])
def test_distributed_data_parallel(name, tmp_path):
    """A model that ends in the loss, as DDP wraps it: buffers are broadcast, gradients those of the model."""
    scores, target, drawn = arguments(name)
    model = EndsInLoss(make(name, weight=WEIGHT))
    model(scores, target, **drawn).backward()
    expected = model.head.weight.grad.clone()
    model.zero_grad()
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        torch.nn.parallel.DistributedDataParallel(model)(scores, target, **drawn).backward()
    finally:
        torch.distributed.destroy_process_group()
    torch.testing.assert_close(model.head.weight.grad, expected)


class EndsInLoss(torch.nn.Module):
    def __init__(self, loss):
        super().__init__()
        self.head = torch.nn.Linear(5, 5)
        self.loss = loss

    def forward(self, features, target, **drawn):
        return self.loss(self.head(features), target, **drawn)
