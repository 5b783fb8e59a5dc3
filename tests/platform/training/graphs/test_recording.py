"""Recordings of steps: nothing of the process disturbs them, and the first replay comes after them."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from topk_platform.training.graphs.recording import StepGraph

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let a CPU pretend to record; return what happened, in order."""
    happened: list[str] = []

    class Graph:
        def register_generator_state(self, generator: Generator) -> None:
            happened.append("generator")

        def replay(self) -> None:
            happened.append("replay")

    @contextmanager
    def recording(graph: Graph, **_: Any) -> Iterator[None]:
        happened.append("begin")
        yield
        happened.append("end")

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", recording)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: happened.append("synchronize"))
    return happened


@pytest.mark.parametrize("enabled", [True, False])
def test_a_recording_ends_before_the_first_replay_and_collects_nothing(
    enabled: bool, events: list[str]
) -> None:
    def step(inputs: Tensor, target: Tensor) -> Tensor:
        events.append(f"step, collects {gc.isenabled()}")
        return inputs.sum()

    before = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        graph = StepGraph(step, torch.ones(2), torch.ones(2), [Generator()])
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()
    graph(torch.ones(2), torch.ones(2))
    assert events == ["generator", "begin", "step, collects False", "end", "synchronize", "replay"]


def test_collection_continues_after_a_step_that_fails(events: list[str]) -> None:
    def step(inputs: Tensor, target: Tensor) -> Tensor:
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        StepGraph(step, torch.ones(2), torch.ones(2), [])
    assert gc.isenabled()


@on_gpu
@pytest.mark.gpu
def test_on_a_gpu_the_first_replay_draws_what_the_step_would_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recording's CUDA stream is kept busy, as other processes on the GPU do."""
    usual, recorded = (Generator("cuda").manual_seed(3) for _ in range(2))
    for generator in (usual, recorded):
        torch.rand(1000, generator=generator, device="cuda")  # positions other than a recording's

    def step(inputs: Tensor, target: Tensor) -> Tensor:
        return torch.rand(1000, generator=recorded, device="cuda")

    large = torch.ones(8192, 8192, device="cuda")
    StepGraph(lambda inputs, target: inputs.sum(), large[0], large[0], [])  # so that torch has its stream
    empty_cache = torch.cuda.empty_cache

    def delayed() -> None:  # what torch calls last before it records
        empty_cache()
        with torch.cuda.stream(torch.cuda.graph.default_capture_stream):
            for _ in range(30):
                torch.mm(large, large)

    monkeypatch.setattr(torch.cuda, "empty_cache", delayed)
    graph = StepGraph(step, large[0], large[0], [recorded])
    for _ in range(3):
        drawn = graph(large[0], large[0]).clone()
        assert torch.equal(drawn, torch.rand(1000, generator=usual, device="cuda"))
