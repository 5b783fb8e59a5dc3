"""The noised hinge's kernels against torch's operator on the very same noise, and in distribution."""

import math

import pytest
import torch
from gradients import with_gradient

from topk_losses import functional
from topk_losses._noised.cuda import TritonNoisedHinge

TRAINED, INITIAL = (3.0, 0.2), (0.1, 0.2)  # the scores' spread, ε


def results(loss, scores, *args, **keywords):
    return with_gradient(lambda s: loss(s, *args, **keywords, reduction="none"), scores)


@pytest.fixture
def both(noised, draws, generator):
    """A function of scores, labels, K, ε, draws and margin: the kernels' results, and torch's of the same noise.

    Torch is given all the noise in float64, the kernel draws it for the candidates alone.
    """

    def evaluate(scores, target, k, epsilon, samples, margin=1.0):
        noise = draws(generator(5), samples, *scores.shape).double()
        given = (target, k, epsilon, samples)
        ours = results(noised, scores, *given, margin, generator=generator(5))
        theirs = results(functional.noised_topk_hinge, scores.double(), *given, margin, noise=noise)
        return *ours, *theirs

    return evaluate


@pytest.mark.parametrize(
    ("classes", "k", "samples", "kind"),
    [
        (17, 1, 3, TRAINED),
        (6, 5, 4, INITIAL),
        (100, 5, 10, TRAINED),
        (1000, 5, 10, TRAINED),
        (1000, 5, 10, INITIAL),
        pytest.param(300, 20, 20, INITIAL, marks=pytest.mark.slow),
        (300, 20, 5, TRAINED),
        pytest.param(5000, 5, 5, TRAINED, marks=pytest.mark.slow),
        pytest.param(64, 31, 40, INITIAL, marks=pytest.mark.slow),
        (100, 5, 10, (3.0, 0.0)),
    ],
)
def test_value_and_gradient_are_those_of_the_draws(classes, k, samples, kind, both, batch):
    spread, epsilon = kind
    losses, gradient, expected, shares = both(*batch(3, classes, spread), k, epsilon, samples)
    torch.testing.assert_close(losses.double(), expected, rtol=1e-6, atol=4e-6 * max(1.0, spread))
    torch.testing.assert_close(gradient.double(), shares, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_classes_far_below_win_at_times(device, both):
    """2,000 classes 6 ε below the six largest: in a draw in twenty the best of them is among the six, and counts."""
    scores = torch.full((1, 2006), -6.0, device=device)
    scores[:, ::400] = 0
    target = torch.zeros(1, dtype=torch.int64, device=device)
    losses, gradient, expected, shares = both(scores, target, 5, 1.0, 64, margin=20.0)
    torch.testing.assert_close(losses.double(), expected, rtol=1e-6, atol=4e-6)
    torch.testing.assert_close(gradient.double(), shares, rtol=0, atol=1e-6)
    assert (gradient[0, scores[0] < 0] > 0).any()


@pytest.mark.parametrize("above", [1, 2, 3])
def test_classes_far_above_the_others_take_no_precision(above, both, batch):
    """Fewer than K + 1 of them, or just so many, within one group of classes."""
    scores, target = batch(3, 600)
    scores[:, 1 : 1 + 256 * above : 256] += 1e8
    losses, gradient, expected, shares = both(scores, target, 2, 0.8, 10, margin=9.0)
    torch.testing.assert_close(losses.double(), expected, rtol=1e-6, atol=1e-5)
    torch.testing.assert_close(gradient.double(), shares, rtol=0, atol=1e-6)


def test_labels_out_of_range_reach_no_other_row(device, batch):
    """On a device labels are not checked: their losses are NaN, and other rows' gradients as without them."""
    scores, target = batch(4, 16)
    seed = torch.tensor([3], device=device)
    gradients = []
    for wrong in ([0, 5], [-1, 16]):
        target[1::2] = torch.tensor(wrong, device=device)
        rule = TritonNoisedHinge(2, 0.2, 4)
        losses, kept = rule.forward(scores, target, 9.0, seed, with_gradient=True)
        gradients.append(rule.backward(torch.ones_like(losses), scores, target, kept)[0][::2])
    assert losses[1::2].isnan().all()
    assert torch.equal(*gradients)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype, both, batch):
    losses, gradient, expected, shares = both(*batch(3, 200, 1.0, dtype=dtype), 5, 0.2, 10)
    assert losses.dtype == torch.float32
    assert gradient.dtype == dtype
    torch.testing.assert_close(losses.double(), expected, rtol=1e-6, atol=4e-6)
    torch.testing.assert_close(gradient, shares.to(dtype), rtol=0, atol=torch.finfo(dtype).eps / 4)


def test_few_or_many_candidates_make_no_difference(device, batch, generator):
    scores, target = batch(3, 200, 1.0)
    seed = torch.randint(2**63 - 1, (1,), generator=generator(3), device=device)
    ways = []
    for capacity in (16, 256):
        rule = TritonNoisedHinge(5, 0.1, 10, least_capacity=capacity)
        losses, kept = rule.forward(scores, target, 1.0, seed, with_gradient=True)
        ways.append((losses, *kept))
    for few, many in zip(*ways, strict=True):
        assert torch.equal(few, many)


def test_a_generator_makes_it_reproducible(noised, batch, generator):
    scores, target = batch(4, 60, 0.1)
    first, again, other = (results(noised, scores, target, 5, generator=generator(s)) for s in (1, 1, 2))
    assert all(map(torch.equal, first, again))
    assert not torch.equal(first[0], other[0])
    source = generator(1)
    one, two = (noised(scores, target, 5, generator=source) for _ in range(2))
    assert one != two
    torch.manual_seed(7)
    one = noised(scores, target, 5)
    torch.manual_seed(7)
    assert noised(scores, target, 5) == one


def philox(counter, seed):
    """Philox4x32 with ten rounds, in Python's integers: four words from a counter of four."""
    one, two, three, four = counter
    low, high = seed % 2**32, seed >> 32
    for _ in range(10):
        first, second = 0xD2511F53 * one, 0xCD9E8D57 * three
        one, two = (second >> 32) ^ two ^ low, second % 2**32
        three, four = (first >> 32) ^ four ^ high, first % 2**32
        low, high = (low + 0x9E3779B9) % 2**32, (high + 0xBB67AE85) % 2**32
    return one, two, three, four


def test_the_noise_is_box_mullers_of_philox(draws, generator, device):
    """Word by word, from the documented counters: class, row and group of four draws."""
    noise = draws(generator(3), 8, 3, 40).double().cpu()
    seed = torch.randint(2**63 - 1, (1,), generator=generator(3), device=device).item()
    for row, entry, group in ((0, 0, 0), (0, 1, 1), (1, 7, 0), (2, 39, 1), (2, 12, 0)):
        words = philox((entry, row, group, 0), seed)
        expected = []
        for far, angle in (words[:2], words[2:]):
            radius, turn = math.sqrt(-2 * math.log((far + 0.5) / 2**32)), 2 * math.pi * angle / 2**32
            expected += [radius * math.cos(turn), radius * math.sin(turn)]
        ours = noise[4 * group : 4 * group + 4, row, entry].tolist()
        assert ours == pytest.approx(expected, abs=2e-6)


def test_the_noise_is_normal_and_independent(draws, generator):
    """Moments, tails and correlations within 5 standard errors; the distribution by Kolmogorov-Smirnov (1e-6)."""
    noise = draws(generator(0), 16, 64, 32).double().cpu().reshape(16, -1)
    count = noise.numel()
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs(noise.pow(power).mean() - moment) < 5 * math.sqrt(variance / count)
    ordered = torch.special.ndtr(noise.flatten().sort().values)
    steps = torch.arange(count + 1, dtype=torch.float64) / count
    distance = torch.maximum((ordered - steps[:-1]).max(), (steps[1:] - ordered).max())
    assert distance < math.sqrt(math.log(2e6) / 2 / count)
    normal = (noise - noise.mean(1, keepdim=True)) / noise.std(1, keepdim=True)
    correlation = normal @ normal.t() / normal.shape[1]
    assert (correlation - correlation.diag().diag()).abs().max() < 5 / math.sqrt(normal.shape[1])
    by_row = draws(generator(0), 16, 64, 32).double().cpu().permute(1, 0, 2).reshape(64, -1)
    correlation = torch.corrcoef(by_row).fill_diagonal_(0)
    assert correlation.abs().max() < 5.5 / math.sqrt(by_row.shape[1])  # 2016 pairs


def test_second_derivatives(noised, batch, generator):
    """The draws being made, the loss is linear where it is not 0; its square is not."""
    scores, target = batch(3, 40, 1.0)
    leaf = scores.requires_grad_()
    losses = noised(leaf, target, 3, 0.2, 8, generator=generator(0), reduction="none")
    (slope,) = torch.autograd.grad(losses.sum(), leaf, retain_graph=True)
    (gradient,) = torch.autograd.grad(losses.square().sum() / 2, leaf, create_graph=True)
    torch.testing.assert_close(gradient, losses[:, None] * slope)
    vector = torch.randn_like(leaf)
    (second,) = torch.autograd.grad((gradient * vector).sum(), leaf)
    torch.testing.assert_close(second, (slope * vector).sum(1, keepdim=True) * slope)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", [TRAINED, INITIAL])
def test_no_memory_of_the_draws_size(kind):
    scores = kind[0] * torch.randn(1024, 10_000, device="cuda", requires_grad=True)
    target = torch.randint(10_000, (1024,), device="cuda")
    functional.noised_topk_hinge(scores, target, 5, kind[1], 50)  # compiles
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    functional.noised_topk_hinge(scores, target, 5, kind[1], 50)
    assert torch.cuda.max_memory_allocated() - before < scores.nbytes / 2


def test_each_of_several_generators_draws_as_if_alone(noised, batch, generator):
    scores, target = batch(4, 40)
    scores.requires_grad_()
    margin = torch.linspace(0.5, 1, 40, device=scores.device)

    def losses(rows, source):
        options = {"margin": margin, "generator": source, "reduction": "none"}
        return noised(scores[rows], target[rows], 3, 0.3, 8, **options)

    together = losses(slice(0, 4), [generator(7), generator(8)])
    alone = torch.cat([losses(slice(0, 2), generator(7)), losses(slice(2, 4), generator(8))])
    assert torch.equal(together, alone)
    slopes = [torch.autograd.grad(value.sum(), scores)[0] for value in (together, alone)]
    assert torch.equal(*slopes)
