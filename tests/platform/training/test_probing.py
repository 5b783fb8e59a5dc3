"""The largest batch that fits, by trying within a limit."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from topk_platform import Model, Recipe, Regime, RetrainedClassifier
from topk_platform.specs import Trial
from topk_platform.training.probing import (
    CpuAttempts,
    CudaAttempts,
    StepError,
    largest,
    least_parts,
    take_step,
)

MakeTrial = Callable[..., Trial]

MODELS = """
import os
import torch
from torch import nn


class Wide(nn.Module):
    '''Four MiB of activations a sample, in each of two layers.'''

    def __init__(self, shape, classes, head):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2**20))
        self.classes = classes

    def forward(self, inputs):
        hidden = (inputs.flatten(1)[:, :1] * self.weight).relu()
        return hidden[:, : 2**16 * self.classes].unflatten(1, (self.classes, -1)).mean(2)


class Fatal(nn.Linear):
    '''Ends its process at nine samples, as Linux does where memory is used up.'''

    def __init__(self, shape, classes, head):
        super().__init__(shape[0], classes)

    def forward(self, inputs):
        if len(inputs) > 8:
            os.kill(os.getpid(), 9)
        return super().forward(inputs)


class Greedy(nn.Linear):
    '''Takes a MiB a sample where nothing is learnt.'''

    def __init__(self, shape, classes, head):
        super().__init__(shape[0], classes)

    def forward(self, inputs):
        if not self.training:
            torch.empty(len(inputs), 2**18)
        return super().forward(inputs)


class Picky(nn.Linear):
    def __init__(self, shape, classes, head):
        super().__init__(shape[0], classes)

    def forward(self, inputs):
        raise TypeError("no such thing")
"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Model]:
    (tmp_path / "lab_of_memory.py").write_text(MODELS)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "lab_of_memory", raising=False)
    importlib.invalidate_caches()
    return lambda name: Model(f"lab_of_memory:{name}")


@pytest.fixture
def rings(make_trial: MakeTrial, model: Callable[[str], Model]) -> Callable[..., Trial]:
    """A trial on 1,800 points in six classes; the smallest of batches is as small as that of its inputs."""

    def make(name: str, device: str = "cpu", **recipe: object) -> Trial:
        given = Recipe(1, **{"batch_size": 64, **recipe})  # type: ignore[arg-type]
        return make_trial(model=model(name), regime=Regime("r", "ring"), recipe=given, device=device)

    return make


@given(st.integers(0, 3000), st.integers(1, 2000), st.integers(1, 3000))
def test_the_search_ends_within_a_sixteenth_of_the_truth(most: int, limit: int, start: int) -> None:
    tried: list[int] = []
    result = largest(lambda size: tried.append(size) or size <= most, limit, start)
    true = min(most, limit)
    assert true - max(1, true // 16) < result <= true or result == true
    assert all(1 <= size <= limit for size in tried) and len(tried) == len(set(tried)) < 30
    assert result == 0 or result in tried
    if most >= limit:
        assert result == limit


@given(st.integers(1, 500), st.integers(1, 500), st.integers(1, 500))
def test_parts_are_as_few_as_fit(size: int, part: int, needed: int) -> None:
    """What is tried last is what is named; one part fewer than named by a tenth does not fit."""
    part = min(part, size)
    result = least_parts(lambda parts: parts >= needed, size, part)
    if result is None:
        assert needed > size
    else:
        assert needed <= result
        least = max(needed, -(-size // part))
        rows = -(-size // least)
        assert -(-size // result) >= rows - max(1, rows // 16)


@pytest.mark.slow
def test_the_named_batch_fits_and_twice_as_much_does_not(rings: Callable[..., Trial]) -> None:
    """A sample takes 8 MiB forward and up to 16 more backward, so 256 MiB more hold 10 to 32 more samples.

    A fresh process sets threads and libraries up in its first step, which takes some MiB more than a later one: there
    the answer holds to the one part in 16 that it is exact to.
    """
    trial, result = rings("Wide"), []
    for memory in (640 * 2**20, 896 * 2**20):
        with CpuAttempts(trial, memory) as attempts:
            result.append(largest(attempts.fits, 1800, 16))
    assert 10 <= result[1] - result[0] <= 32
    with CpuAttempts(trial, memory) as fresh:
        assert fresh.fits(result[1] * 15 // 16)
        assert not fresh.fits(2 * result[1])
        assert fresh.fits(2 * result[1], parts=4)


@pytest.mark.slow
def test_a_process_that_dies_did_not_fit(rings: Callable[..., Trial]) -> None:
    with CpuAttempts(rings("Fatal"), 2**31) as attempts:
        assert [attempts.fits(size) for size in (8, 9, 8)] == [True, False, True]
        process = attempts._process
    assert not process.is_alive()


@pytest.mark.slow
def test_scores_are_taken_of_as_many_as_at_once(rings: Callable[..., Trial]) -> None:
    """Of the ring's 1,800 samples for validation, 1.8 GiB of activations."""
    for model, memory, fits in (
        ("Greedy", 2**30, False),
        ("Greedy", 3 * 2**30, True),
        ("Fatal", 2**30, False),
    ):
        with CpuAttempts(rings(model), memory) as attempts:
            assert attempts.fits(8)
            assert attempts.scores_fit() == fits


@pytest.mark.slow
def test_a_process_that_cannot_begin_is_no_want_of_memory(
    rings: Callable[..., Trial], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Trial, "to_json", lambda _: "{}")
    with (
        CpuAttempts(rings("Wide"), 2**31) as attempts,
        pytest.raises(StepError, match="ended before the step began"),
    ):
        attempts.fits(8)


@pytest.mark.slow
def test_another_error_is_reported(rings: Callable[..., Trial]) -> None:
    with CpuAttempts(rings("Picky"), 2**31) as attempts, pytest.raises(StepError, match="TypeError: no such"):
        attempts.fits(8)


@pytest.mark.slow
def test_a_limit_below_everything_lets_nothing_fit(rings: Callable[..., Trial]) -> None:
    with CpuAttempts(rings("Wide"), 2**20) as attempts:
        assert not attempts.fits(1)


def test_a_step_is_the_trials_own(
    make_trial: MakeTrial, monkeypatch: pytest.MonkeyPatch, model: Callable[[str], Model]
) -> None:
    """In its parts, with its inputs' shape and dtype, the optimiser's state there, nothing left behind."""
    from topk_platform.training.session import Session

    seen: list[tuple[int, int]] = []
    backward = Session._backward

    def noting(self: Session, inputs: torch.Tensor, target: torch.Tensor, share: float) -> torch.Tensor:
        assert inputs.shape[1:] == (1, 8, 8) and inputs.dtype == torch.float32
        seen.append((len(inputs), len(self.optimizer.state)))
        return backward(self, inputs, target, share)

    monkeypatch.setattr(Session, "_backward", noting)
    threads = torch.get_num_threads()
    take_step(make_trial(recipe=Recipe(1, accumulate=9)), 100, parts=3)
    assert seen == [(2, 0)] * 3 + [(34, 4), (34, 4), (32, 4)]
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("recipe", [Recipe(3, after=RetrainedClassifier(2))])
def test_a_step_is_the_one_that_takes_most(
    recipe: Recipe, make_trial: MakeTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the arm's loss, where the first epochs have cross-entropy; of all layers, where the last is retrained."""
    from topk_platform.training.session import Session

    seen: list[tuple[int, bool]] = []
    backward = Session._backward

    def noting(self: Session, inputs: torch.Tensor, target: torch.Tensor, share: float) -> torch.Tensor:
        whole = all(parameter.requires_grad for parameter in self.model.parameters())
        seen.append((len(inputs), whole))
        return backward(self, inputs, target, share)

    monkeypatch.setattr(Session, "_backward", noting)
    take_step(make_trial(recipe=recipe), 100)
    assert seen == [(2, True), (100, True)]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_same_on_a_gpu(rings: Callable[..., Trial]) -> None:
    trial, result = rings("Wide", "cuda"), []
    before = torch.cuda.memory_allocated()  # workspaces that earlier tests' matrix products left, 32 MiB each
    for memory in (2**28, 2**29):
        with CudaAttempts(trial, memory) as attempts:
            result.append(largest(attempts.fits, 1800, 64))
            assert not attempts.fits(2 * result[-1])
    assert 10 <= result[1] - result[0] <= 32
    assert torch.cuda.memory_allocated() - before < 2**26
    with CudaAttempts(trial) as free:
        assert free.fits(result[1])
