"""A small study whose trainings can be held in their middle."""

import os
import sys
import time
from pathlib import Path

from lab import in_worker, note, tell_of_worker
from torch import nn

from topk_platform import TPE, Float, LabelNoise, Loss, Model, Protocol, Quantile, Recipe, Regime, Study, grid

FOLDER = Path(os.environ["LAB_FOLDER"])
HELD_AT = 12  # the step of a process's own at which it is held: in the second of eight epochs of nine steps


class Held(nn.Module):
    """A network; of those that begin to train, from one process to the next, only so many are allowed on."""

    def __init__(self, classes):
        super().__init__()
        hidden = [nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.1)]
        self.layers = nn.Sequential(*hidden, nn.Linear(16, classes))
        self.steps = 0

    def forward(self, inputs):
        if self.training and in_worker():
            self.step()
        return self.layers(inputs)

    def step(self):
        self.steps += 1
        number = note("steps")
        while number >= limit("last_step"):
            time.sleep(0.05)
        if self.steps == 1:
            tell_of_worker()
            self.number = note("begun")
        if self.steps == HELD_AT and self.number > limit("allowed"):
            note("held", os.getpid())
            while self.number > limit("allowed"):
                time.sleep(0.05)


def limit(name):
    file = FOLDER / name
    return int(file.read_text() or 0) if file.exists() else sys.maxsize


def held(shape, classes, head):
    return Held(classes)


def wrong(scores, labels):
    return {"wrong": -(scores.argmax(1) != labels).double().mean(), "images": len(labels)}


rate = Float(0.01, 1, log=True)
noised = {"learning_rate": rate, "epsilon": Float(0.1, 10, log=True)}
smooth = {"learning_rate": rate, "tau": Float(0.01, 10, log=True)}
losses = [
    Loss("noised_topk_hinge", noised, {"learning_rate": 0.1, "epsilon": 1.0}, {"samples": 5}),
    Loss("smooth_topk_svm", smooth, {"learning_rate": 0.1, "tau": 0.31}),
]


def study(*more):
    arms = grid(
        [Regime("noisy", "digits", (LabelNoise(0.4),))],
        [Model("my_lab:held")],
        [*losses, *more],
        k=3,
        recipe=Recipe(epochs=8, batch_size=128),
        protocol=Protocol(TPE(random=2), pruner=Quantile(startup=2)),
    )
    budget = {"trials": 6, "seeds": 2}
    return Study("small", arms, topk=(1, 3), **budget, baseline="noised_topk_hinge", measures=(wrong,))


def wider():
    return study(Loss("ldam", {"learning_rate": rate}, {"learning_rate": 0.1}, {"scale": 10.0}))
