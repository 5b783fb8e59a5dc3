"""What the losses with kernels share: layouts, weights, reductions, ignored labels, odd rows, torch's machinery."""

import pytest
import torch
from gradients import nothing_waits
from torch._subclasses import FakeTensorMode

from topk_losses import functional
from topk_losses._core import triton

WEIGHT = torch.tensor([0.5, 1.0, 2.0, 1.0, 0.0, 3.0, 1.0])
MARGINS = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7])
INF, NAN = torch.inf, torch.nan


@pytest.fixture(params=["smooth", "noised", "imbalanced"])
def pair(request, device, draws, generator):
    """A loss on the kernels, and the same in torch's operations: functions of scores, labels and keywords."""

    def noise(scores):
        count = scores.numel() // 7
        rows = draws(generator(5), 4, count, 7).to(torch.float64)
        return rows if scores.ndim == 2 else rows.reshape(4, len(scores), -1, 7).movedim(3, 2)

    def smooth(s, y, **keywords):
        return functional.smooth_topk_svm(s, y, 3, 0.7, **keywords)

    def noised(s, y, **keywords):
        return functional.noised_topk_hinge(s, y, 3, 0.5, 4, **keywords)

    def imbalanced(s, y, margin=MARGINS, **keywords):
        margin = margin if isinstance(margin, torch.Tensor) else torch.full((7,), margin)
        return functional.noised_imbalanced_topk_hinge(s, y, 3, margin.to(s.device), 0.5, 4, 2.0, **keywords)

    if request.param == "smooth":
        return smooth, smooth
    loss = noised if request.param == "noised" else imbalanced
    return (
        lambda s, y, **keywords: loss(s, y, generator=generator(5), **keywords),
        lambda s, y, **keywords: loss(s, y, noise=noise(s), **keywords),
    )


def evaluate(loss, scores, target, dtype, **keywords):
    """Losses and gradients with respect to scores and, if they are given, margins."""
    scores = scores.detach().to(dtype).requires_grad_()
    leaves = [scores]
    if isinstance(keywords.get("margin"), torch.Tensor):
        keywords["margin"] = keywords["margin"].to(scores.device, dtype).requires_grad_()
        leaves.append(keywords["margin"])
    losses = loss(scores, target, **keywords)
    gradients = torch.autograd.grad(losses.sum(), leaves)
    return [x.detach().double() for x in (losses, *gradients)]


def agree(pair, scores, target, **keywords):
    assert triton.refusal(scores, target, asked=True) is None
    ours = evaluate(pair[0], scores, target, torch.float32, **keywords)
    theirs = evaluate(pair[1], scores, target, torch.float64, **keywords)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=2e-6, equal_nan=True)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("margin", [0.3, MARGINS])
@pytest.mark.parametrize("weighted", [False, True])
def test_reductions_margins_weights_and_ignored_labels(pair, batch, reduction, margin, weighted):
    scores, target = batch(6, 7)
    target[1] = -100
    keywords = {"margin": margin, "reduction": reduction}
    if weighted:
        keywords["weight"] = WEIGHT.to(scores.device)
    agree(pair, scores, target, **keywords)


def test_ignored_rows_cost_nothing(pair, batch):
    scores, _ = batch(4, 7)
    target = torch.tensor([0, 2, 1, 6], device=scores.device)
    for reduction in ("mean", "sum", "none"):
        agree(pair, scores, target, ignore_index=2, reduction=reduction)
    scores[1] = NAN
    losses, gradient = evaluate(
        pair[0], scores, target, torch.float32, ignore_index=2, reduction="none", margin=0.3
    )
    assert losses[1] == 0
    assert (gradient[1] == 0).all()
    everything = pair[0](scores, torch.full_like(target, -100))
    assert everything.isnan()  # as torch's cross-entropy: nothing over nothing


def test_layouts(pair, batch):
    """Classes in the second dimension of several, and rows that do not lie next to each other."""
    scores, _ = batch(12, 7)
    target = torch.arange(12, device=scores.device).reshape(3, 4) % 7
    agree(pair, scores.reshape(3, 4, 7).movedim(2, 1), target, reduction="none")
    wide, _ = batch(6, 14)
    agree(pair, wide[::2, :7], target[:, 0], reduction="none")
    agree(pair, wide[:3, ::2], target[:, 0], reduction="none")
    agree(pair, scores[:0], target.flatten()[:0], reduction="sum")


@pytest.mark.parametrize("offset", [0.0, 1000.0, -300.0])
def test_odd_rows(pair, batch, offset):
    """The same stated results as everywhere: NaN and +inf make a row NaN, -inf masks, a masked target costs inf."""
    scores, _ = batch(8, 7)
    scores = (16 * scores).round() / 16 + offset  # so that the offset rounds nothing
    target = torch.zeros(8, dtype=torch.int64, device=scores.device)
    scores[0, 3] = NAN
    scores[1, 3] = INF
    scores[2, 0] = INF
    scores[3, 1:4] = -INF
    scores[4, 2:] = -INF  # too few classes are left
    scores[5, 0] = -INF
    scores[6, 0], scores[6, 1] = -INF, NAN
    scores[7] = offset
    losses = pair[0](scores, target, reduction="none")
    expected = pair[1](scores.double(), target, reduction="none")
    torch.testing.assert_close(losses.double(), expected, rtol=1e-5, atol=2e-6, equal_nan=True)
    assert losses[:3].isnan().all()
    assert losses[5] == losses[6] == INF
    ours = evaluate(pair[0], scores[3:6], target[3:6], torch.float32, reduction="none")[1]
    assert ours.isfinite().all()
    agree(pair, scores[3:5], target[3:5], reduction="none")


@pytest.mark.parametrize("name", ["smooth_topk_svm", "noised_topk_hinge", "soft_topk_loss"])
def test_kernels_pass_nan_on(name, batch):
    """The gradient of a loss of NaN is NaN without help, also at a label's own score, and by margins."""
    scores, target = batch(3, 40)
    scores[0, 3], scores[1, 3] = NAN, INF
    margin = torch.ones(40, device=scores.device)
    keywords = {} if name == "soft_topk_loss" else {"margin": margin.requires_grad_()}
    leaves = [scores.requires_grad_(), *keywords.values()]
    losses = getattr(functional, name)(scores, target, 3, reduction="none", **keywords)
    gradient, *by_margin = torch.autograd.grad(losses.sum(), leaves)
    assert losses.isnan().tolist() == [True, True, False]
    assert gradient.isnan().any(1).tolist() == [True, True, False]
    assert gradient[[0, 1], target[:2]].isnan().all()
    assert all(slopes[target[:2]].isnan().all() for slopes in by_margin)


def test_several_gradients_at_once(pair, batch):
    scores, target = batch(3, 7)
    losses = pair[0](scores.requires_grad_(), target, reduction="none")
    (jacobian,) = torch.autograd.grad(
        losses, scores, torch.eye(3, device=scores.device), is_grads_batched=True, retain_graph=True
    )
    for i, loss in enumerate(losses):
        (one,) = torch.autograd.grad(loss, scores, retain_graph=True)
        torch.testing.assert_close(jacobian[i], one)


def test_without_gradients(pair, batch):
    scores, target = batch(3, 7)
    expected = pair[0](scores.clone().requires_grad_(), target)
    with torch.no_grad():
        assert torch.equal(pair[0](scores.requires_grad_(), target), expected)
    assert torch.equal(pair[0](scores.detach(), target), expected)


def test_what_is_left_to_torch(batch, device, monkeypatch):
    scores, target = batch(3, 7)

    def refusal(*inputs):
        return triton.refusal(*inputs, asked=True)

    assert refusal(scores, target) is None
    assert refusal(scores.double(), target) == "the kernels do not take torch.float64"
    assert refusal(scores, scores.softmax(1)) == "the targets are soft"
    many = scores.new_zeros(1, triton.MOST_CLASSES + 1)
    assert refusal(many, target[:1]) == f"there are more than {triton.MOST_CLASSES} classes"
    assert refusal(scores.to("meta"), target.to("meta"))
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(scores), mode.from_tensor(target)
        assert refusal(*fake) == "the scores are not a plain tensor"
    monkeypatch.setattr(triton, "is_there", lambda: False)
    assert refusal(scores, target) == "Triton is not installed"


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["smooth_topk_svm", "noised_topk_hinge"])
def test_cuda_alone(name):
    """No waiting for the device; float64 and a compiled graph go another way to the same place."""
    loss = getattr(functional, name)
    target = torch.arange(64, device="cuda") % 50
    scores = torch.randn(64, 50, device="cuda", requires_grad=True)
    margin = torch.rand(50, device="cuda")
    loss(scores, target, 5, margin=margin).backward()  # compiles
    with nothing_waits():
        value = loss(scores, target, 5, margin=margin)
        value.backward()
    again = loss(scores.double(), target, 5, margin=margin)
    compiled = torch.compile(lambda s, y: loss(s, y, 5, margin=margin), fullgraph=True)(scores, target)
    compiled.backward()
    tolerance = 1e-5 if name == "smooth_topk_svm" else 0.2  # other draws
    torch.testing.assert_close(value.double(), again, rtol=tolerance, atol=1e-6)
    torch.testing.assert_close(value, compiled, rtol=tolerance, atol=1e-6)


def compiled_kernels():
    """How many kernels are compiled in this process."""
    from topk_losses._noised import cuda_kernels as noised
    from topk_losses._smooth_svm import cuda_kernels as smooth
    from topk_losses._soft_topk import cuda_kernels as soft

    kernels = [getattr(module, name) for module in (noised, smooth, soft) for name in module.__all__]
    return sum(len(cache[0]) for kernel in kernels for cache in kernel.device_caches.values())


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["smooth_topk_svm", "noised_topk_hinge", "soft_topk_loss"])
def test_the_trial_launch_compiles_all_that_follows(name):
    """Neither gradients of another stride nor other ignored labels have kernels of their own."""
    loss = getattr(functional, name)
    target = torch.arange(64, device="cuda") % 50
    scores = torch.randn(64, 50, device="cuda", requires_grad=True)
    with torch.no_grad():
        loss(scores, target, 4)
    loss(scores[:1].detach().requires_grad_(), target[:1], 4)  # without a backward pass of its own
    before = compiled_kernels()
    loss(scores, target, 4).backward()
    for ignored in (0, 1, 3):
        losses = loss(scores, target, 4, reduction="none", ignore_index=ignored)
        losses.backward(torch.ones_like(losses))
        loss(scores, target, 4, reduction="sum", ignore_index=ignored).backward()
    assert compiled_kernels() == before


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["smooth", "noised", "soft"])
def test_more_scores_than_32_bits_count(name):
    """The last of 70,000 rows of 2^15 classes, which share the memory of one; 5 GB of gradients, or 10."""
    if torch.cuda.mem_get_info()[0] < 24 * 2**30:
        pytest.skip("needs 24 GiB of free memory")
    assert last_row_is_right(name, 70_000, 2**15, "cuda")


def last_row_is_right(name, rows, classes, device):
    """Whether the last of equal rows has the first one's loss and gradient; of drawn ones, what any draws lead to."""
    from topk_losses._noised.cuda import TritonNoisedHinge
    from topk_losses._smooth_svm.cuda import TritonSmoothSVM
    from topk_losses._soft_topk.cuda import TritonSoftTopK

    rules = {
        "smooth": (TritonSmoothSVM(3, 1.0), 1.0),
        "noised": (TritonNoisedHinge(3, 0.2, 4), 20.0, torch.tensor([5], device=device)),
        "soft": (TritonSoftTopK(3, 1.0, "logistic", True),),
    }
    rule, *inputs = rules[name]
    dtype = torch.float32 if name == "soft" else torch.bfloat16
    scores = torch.linspace(2, -2, classes, device=device).to(dtype).expand(rows, classes)
    labels = torch.full((rows,) if rule.complete else (rows, 1), 7, device=device)
    losses, kept = rule.forward(scores, labels, *inputs, with_gradient=True)
    gradient = rule.backward(torch.ones_like(losses), scores, labels, kept)[0]
    first, last = gradient[0].double(), gradient[-1].double()
    if name != "noised":
        return torch.equal(first, last) and bool(last[7] < 0) and bool(losses[0] == losses[-1])
    return bool(last[7] <= -0.25) and abs(last.sum().item()) < 1e-2 and losses[-1].isfinite().item()
