"""A step of five networks as a stack, beside a loop written by hand over ``torch.baddbmm`` and five plain loops.

    python benchmarks/stacks.py --clock cpu          # one core

The networks, data and recipe are those of the study ``letters_quick`` with 20 images a class. All three train on the
same data with the same values: alike, or with learning rates, weight decays and temperatures of their own. The loops
normalise all images before they begin. Times are of a step of all five networks; ratios are of the minima and of the
medians of epochs in turns.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional
from training import header, parse, turns

import topk_losses as tl
from topk_platform.data import load
from topk_platform.specs import Trial
from topk_platform.training.ensemble import Ensemble
from topk_platform.training.process import trial_process
from topk_platform.training.steps.optim import learning_rate
from topk_studies.letters import letters_quick

LOSSES = {"cross_entropy": "temperature", "smooth_topk_svm": "tau"}  # with the parameter that scales it
UNLIKE = ((0.1, 1e-4, 1.0), (0.05, 1e-3, 0.5), (0.2, 1e-5, 2.0), (0.03, 1e-4, 0.3), (0.3, 3e-5, 3.0))
SEEDS = (1, 2, 3, 4, 5)
K = 5


def trials_of(loss: str, unlike: bool) -> list[Trial]:
    """Five trials, with values of their own or all with the first one's."""
    (arm,) = [arm for arm in letters_quick().arms if arm.name == f"clean-20/mlp/{loss}"]
    names = ("learning_rate", "weight_decay", LOSSES[loss])
    values = [dict(zip(names, row, strict=True)) for row in (UNLIKE if unlike else UNLIKE[:1] * len(SEEDS))]
    fingerprint = load(arm.regime).fingerprint
    return [
        Trial("b", "a", arm, (1, K), "confirm", 0, seed, 0, own, fingerprint, "c", together=SEEDS)
        for seed, own in zip(SEEDS, values, strict=True)
    ]


@dataclass
class Loops:
    """What both loops share: each member's normalised data, order and values."""

    ensemble: Ensemble
    loss: str
    step: int = 0
    inputs: list[Tensor] = field(default_factory=list)
    labels: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        for dataset, how in zip(self.ensemble.datasets, self.ensemble.normalisations, strict=True):
            assert how is not None, "no images"
            self.inputs.append(how(dataset.train.tensor).flatten(1))
            self.labels.append(dataset.train.labels)
        self.orders = [torch.Generator().manual_seed(seed) for seed in SEEDS]
        self.scales = [float(trial.values[LOSSES[self.loss]]) for trial in self.ensemble.trials]  # type: ignore[arg-type]

    @property
    def size(self) -> int:
        """Samples of a batch."""
        return self.ensemble.recipe.batch_size

    def rate(self, member: int, step: int) -> float:
        """The learning rate of a step."""
        steps = self.ensemble.recipe.epochs * self.ensemble.epoch_steps
        return learning_rate(self.ensemble.recipes[member], step, steps)


class Plain(Loops):
    """Five usual loops, one after the other."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.networks = [self.ensemble.network(m, self.ensemble.weights(m)) for m in range(len(SEEDS))]
        self.optimizers = [
            torch.optim.SGD(
                network.parameters(), 0.1, 0.9, nesterov=True, weight_decay=recipe.weight_decay, fused=True
            )
            for network, recipe in zip(self.networks, self.ensemble.recipes, strict=True)
        ]

    def epoch(self) -> None:
        """Train all networks."""
        for member, network in enumerate(self.networks):
            self._epoch_of(member, network)
        self.step += self.ensemble.epoch_steps

    def _epoch_of(self, member: int, network: nn.Module) -> None:
        optimizer, scale = self.optimizers[member], self.scales[member]
        order = torch.randperm(len(self.labels[member]), generator=self.orders[member])
        total = 0.0
        for number, rows in enumerate(torch.split(order, self.size)):
            scores, target = network(self.inputs[member][rows]), self.labels[member][rows]
            if self.loss == "smooth_topk_svm":
                loss = tl.functional.smooth_topk_svm(scores, target, k=K, tau=scale)
            else:
                loss = scale * functional.cross_entropy(scores / scale, target)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item() * len(target)
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.param_groups[0]["lr"] = self.rate(member, self.step + number)
            optimizer.step()


class ByHand(Loops):
    """One loop over the stack, as one would write it for this network, this loss and this recipe alone."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.stacked_inputs, self.stacked_labels = torch.stack(self.inputs), torch.stack(self.labels)
        self.weights = [
            (w.detach().mT if w.ndim == 3 else w.detach()[:, None])
            .clone(memory_format=torch.contiguous_format)
            .requires_grad_()
            for w in self.ensemble.stacked.values()
        ]
        self.unlike = any(recipe != self.ensemble.recipe for recipe in self.ensemble.recipes)
        self.member = torch.arange(len(SEEDS))[:, None]
        self.scale = torch.tensor(self.scales)[:, None, None]
        self.decay = torch.tensor([recipe.weight_decay for recipe in self.ensemble.recipes])[:, None, None]
        self.momenta = [torch.zeros_like(weights) for weights in self.weights]
        self.optimizer = torch.optim.SGD(self.weights, 0.1, 0.9, nesterov=True, weight_decay=1e-4, fused=True)

    def epoch(self) -> None:
        """Train all networks."""
        total = torch.zeros(len(SEEDS), dtype=torch.float64)
        for inputs, target in self._batches():
            first, first_bias, last, last_bias = self.weights
            hidden = torch.baddbmm(first_bias, inputs, first).relu()
            losses = self._losses(torch.baddbmm(last_bias, hidden, last), target)
            for weights in self.weights:
                weights.grad = None
            losses.sum().backward()  # type: ignore[no-untyped-call]
            total += losses.detach() * target.shape[1]
            self._update([weights.grad for weights in self.weights if weights.grad is not None])
            self.step += 1

    def _batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        count = self.stacked_labels.shape[1]
        order = torch.stack([torch.randperm(count, generator=one) for one in self.orders])
        for rows in torch.split(order, self.size, 1):
            yield self.stacked_inputs[self.member, rows], self.stacked_labels[self.member, rows]

    def _losses(self, scores: Tensor, target: Tensor) -> Tensor:
        if self.unlike:
            scores = scores / self.scale
        if self.loss == "smooth_topk_svm" and self.unlike:
            shift = (K / self.scale).expand(*target.shape, 1)
            scores = scores.scatter_add(2, target[:, :, None], -shift)
            by_row = partial(tl.functional.smooth_topk_svm, k=K, margin=0.0)
        elif self.loss == "smooth_topk_svm":
            by_row = partial(tl.functional.smooth_topk_svm, k=K)
        else:
            by_row = functional.cross_entropy  # type: ignore[assignment]
        losses = by_row(scores.flatten(0, 1), target.flatten(), reduction="none").view(target.shape).mean(1)
        return losses * self.scale.view(-1) if self.unlike else losses

    def _update(self, gradients: Sequence[Tensor]) -> None:
        norm = torch.stack([gradient.flatten(1).norm(dim=1) for gradient in gradients]).norm(dim=0)
        factor = (1 / (norm + 1e-6)).clamp(max=1)[:, None, None]
        for gradient in gradients:
            gradient.mul_(factor)
        if not self.unlike:
            self.optimizer.param_groups[0]["lr"] = self.rate(0, self.step)
            self.optimizer.step()
            return
        rates = torch.tensor([self.rate(member, self.step) for member in range(len(SEEDS))])[:, None, None]
        with torch.no_grad():
            for weights, gradient, momentum in zip(self.weights, gradients, self.momenta, strict=True):
                momentum.mul_(0.9).add_(gradient.addcmul_(weights, self.decay))
                weights.addcmul_(gradient.add_(momentum, alpha=0.9), rates, value=-1)


def main() -> None:
    """Print the table."""
    options = parse()
    torch.set_num_threads(1)
    header(
        f"A step of five networks of letters_quick, torch {torch.__version__}, {options.clock} time, one thread",
        *("loss", "values", "ours, ms", "by hand, ms", "plain loops, ms"),
        *("× by hand (minima)", "(medians)", "× plain (minima)"),
    )
    for loss in LOSSES:
        for values, unlike in (("alike", False), ("unlike", True)):
            trials = trials_of(loss, unlike)
            with trial_process(trials[0]):
                ensemble = Ensemble.prepare(trials)
                by_hand, plain = ByHand(ensemble, loss), Plain(ensemble, loss)
                works: list[Callable[[], object]] = [ensemble.advance, by_hand.epoch, plain.epoch]
                times = turns(works, options)
            steps: Mapping[int, float] = {n: min(t) / ensemble.epoch_steps for n, t in enumerate(times)}
            least = " | ".join(f"{1e3 * step:.2f}" for step in steps.values())
            median = statistics.median(times[0]) / statistics.median(times[1])
            ratio = f"**{steps[0] / steps[1]:.2f}** | {median:.2f} | {steps[0] / steps[2]:.2f}"
            print(f"| {loss} | {values} | {least} | {ratio} |", flush=True)


if __name__ == "__main__":
    main()
