"""Losses that misbehave, and data and losses that write down where they are used."""

import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import labparts.parts
import ray
import torch
from torch import nn

from topk_platform import Float, Loss, Model, Recipe, Regime, Study, grid
from topk_platform.data import digits
from topk_platform.training.faults import machinery_fault

FOLDER = Path(os.environ["LAB_FOLDER"])
RELAPSES = 3  # so often a process dies that has got a step further: once more than there are pauses


def in_worker():
    return ray.is_initialized() and ray.get_runtime_context().get_actor_id() is not None


def note(name, text=""):
    """Append a line to a file; return how long it is then, which no two processes are told the same."""
    with (FOLDER / name).open("ab", buffering=0) as file:
        file.write(f"{text}\n".encode())
        return file.tell()


def tell_of_worker():
    """Write down what this worker works with."""
    parts = Path(labparts.__file__).parent
    modules = ("topk_platform", "topk_losses", __name__, "labparts")
    facts = {
        "files": [sys.modules[name].__file__ for name in modules],
        "shipped": sorted(str(path.relative_to(parts)) for path in parts.rglob("*")),
        "resources": ray.get_runtime_context().get_assigned_resources(),
    }
    note("workers.jsonl", json.dumps(facts))


def data():
    if in_worker():  # and not where the driver checks the study
        tell_of_worker()
        if (FOLDER / "other-data").exists():
            result = digits()
            return replace(result, train=replace(result.train, inputs=result.train.inputs / 2))
    return digits()


def first(how):
    """Return whether this happens for the first time, in whichever process."""
    return note(f"first-{how}") == 1


def crowded_out():
    """Return what memory that is used up on a GPU stands for where a neighbour holds half of it."""
    total = 80 * 2**30
    torch.cuda.mem_get_info = lambda: (0, total)
    torch.cuda.memory_reserved = lambda: total // 2
    return machinery_fault(torch.OutOfMemoryError("CUDA out of memory"), "cuda")


class Mischief(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how = how
        self.steps = 0

    def forward(self, scores, target):
        if in_worker():  # and not in the driver's dry step
            self.misbehave()
        loss = nn.functional.cross_entropy(scores, target)
        return loss * float("nan") if self.how == "nan" and in_worker() else loss

    def misbehave(self):
        if self.how == "always" or (self.how in ("once", "edits") and first(self.how)):
            if self.how == "edits":
                with open(__file__, "a") as file:
                    file.write("assert os.getpid()  # edited while the study runs\n")
            os.kill(os.getpid(), signal.SIGKILL)
        self.steps += 1
        if self.how == "relapses" and self.steps == 3 and note("relapses") <= RELAPSES:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "hangs" and first(self.how):
            time.sleep(3600)
        if self.how == "crowded" and first(self.how):
            raise crowded_out()
        if self.how == "hungry":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        if self.how == "raises":
            raise ArithmeticError("no such luck")
        if self.how == "stale" and not (FOLDER / "repaired").exists():
            raise OSError("stale NFS handle")
        if self.how == "exits":
            sys.exit("enough of it")
        if self.how == "interrupts":
            raise KeyboardInterrupt
        if self.how == "nasty":
            torch.set_default_dtype(torch.float64)
            torch.manual_seed(7)
            torch.set_num_threads(2)
            torch.use_deterministic_algorithms(True)


def mischief(how="none"):
    note("pids.txt", f"{os.getpid()} {how}")
    return Mischief(how)


def unbuildable(shape, classes, head):
    if in_worker():
        raise ArithmeticError("in its constructor")
    return with_dropout(shape, classes, head)


def with_dropout(shape, classes, head):
    hidden = [nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.5)]
    return nn.Sequential(*hidden, nn.Linear(16, classes))


RATE = {"learning_rate": Float(0.01, 1, log=True)}
FIRST = {"learning_rate": 0.1}


def study(*hows, models=(), **more):
    losses = [Loss("lab:mischief", RATE, FIRST, {"how": how}, label=how) for how in hows]
    models = [Model("labparts.parts:with_dropout"), *map(Model, models)]
    arms = grid([Regime("plain", "lab:data")], models, losses, k=3, recipe=Recipe(epochs=1))
    return Study("lab", arms, topk=(1, 3), trials=1, seeds=1, baseline="none", **more)


def plain():
    return study("none")


def edited():
    return study("none", "edits")


def stale():
    return study("none", "stale")


def lost():
    """Faults and failures of every kind."""
    faults = ("once", "always", "relapses", "crowded")
    return study("none", *faults, "raises", "nan", "exits", "interrupts", "hungry")


def lost_once():
    return study("none", "once")


def unbuilt():
    return study("none", models=["lab:unbuildable"])


def reused():
    return study("nasty", "none")


def on_gpu():
    return study("none", device="cuda", gpus=0.5)


def slow_to_start():
    return study("none", start_limit=0.01)


def hanging():
    return study("none", "hangs", start_limit=0.01)
