"""Steps that are recorded and replayed as CUDA graphs, which train as the usual steps do."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, cast

import pytest
import torch
from small_trials import IMAGES_OF_TEN, a_trial, completed, same_weights, trained
from torch import Generator, Tensor, nn

from topk_platform import (
    EMA,
    Arm,
    Augmentation,
    Loss,
    Model,
    Numerics,
    Protocol,
    Recipe,
    UserError,
)
from topk_platform.specs import Schedule, Trial
from topk_platform.training import Session
from topk_platform.training.process import trial_process
from topk_platform.training.steps import cuda_graphs as replay
from topk_platform.training.steps.cuda_graphs import StepGraph, rehearsed

GRAPHS = Numerics(cuda_graphs=True)
CROPS = Augmentation(crop=4, flip=True, cutout=4)


class Repeated:
    """A graph's stand-in on the CPU: it runs the step again, without what Python code adds up."""

    made: int = 0
    calls: int = 0

    def __init__(
        self,
        step: Callable[[Tensor, Tensor], Tensor],
        inputs: Tensor,
        target: Tensor,
        generators: Iterable[Generator],
    ) -> None:
        type(self).made += 1
        self.step, self.shape = step, inputs.shape

    def __call__(self, inputs: Tensor, target: Tensor) -> Tensor:
        type(self).calls += 1
        assert inputs.shape == self.shape
        session = cast("Session", self.step.__self__)  # type: ignore[attr-defined]
        rates = [group["lr"] for group in session.optimizer.param_groups]
        loss = self.step(inputs, target)
        for group, rate in zip(session.optimizer.param_groups, rates, strict=True):
            assert group["lr"] is rate  # replayed kernels read the same tensor
        return loss


def replaying_session(trial: Trial) -> Session:
    """A session that replays on the CPU."""
    session = Session.prepare(trial)
    session.use_replay()
    return session


@pytest.fixture
def replaying(monkeypatch: pytest.MonkeyPatch) -> type[Repeated]:
    """Let sessions replay on the CPU; return the class that counts recordings and replays."""
    monkeypatch.setattr(replay, "rehearsed", nullcontext)
    monkeypatch.setattr(replay, "StepGraph", Repeated)
    monkeypatch.setattr(Repeated, "made", 0)
    monkeypatch.setattr(Repeated, "calls", 0)
    return Repeated


def a_recipe(**changes: Any) -> Recipe:
    return Recipe(**{"epochs": 3, "numerics": GRAPHS, **changes})


def losses_of(session: Session, epochs: int = 3) -> list[float]:
    return [session.advance()[0, 0].item() for _ in range(epochs)]


@pytest.mark.parametrize("loss", ["cross_entropy", "noised_topk_hinge"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"clip_norm": 1.0, "optimizer": "adam", "learning_rate": 0.01},
    ],
)
def test_replayed_steps_are_the_usual(loss: str, options: dict[str, Any], replaying: type[Repeated]) -> None:
    trial = a_trial(loss, recipe=a_recipe(**options))
    usual, session = Session.prepare(trial), replaying_session(trial)
    # The rate is rounded to float32 on the device.
    assert losses_of(session) == pytest.approx(losses_of(usual), rel=1e-4)
    assert session.step == usual.step
    assert replaying.calls > 2 * (session.epoch_steps - 6)
    assert torch.equal(session.batches.changes.get_state(), usual.batches.changes.get_state())


def test_augmentation_is_a_part_of_the_step(replaying: type[Repeated]) -> None:
    trial = a_trial(
        regime=IMAGES_OF_TEN, model=Model("convnet"), recipe=a_recipe(augmentation=CROPS, batch_size=32)
    )
    usual, session = Session.prepare(trial), replaying_session(trial)
    assert losses_of(session, 1) == pytest.approx(losses_of(usual, 1), rel=1e-4)
    assert replaying.calls == session.epoch_steps - 4  # three steps before, and the last one
    assert torch.equal(session.batches.changes.get_state(), usual.batches.changes.get_state())


@pytest.mark.parametrize("cut", [1, 5, 9])
def test_a_resumed_session_records_anew(cut: int, replaying: type[Repeated]) -> None:
    trial = a_trial("noised_topk_hinge", recipe=a_recipe())
    whole, first, second = (replaying_session(trial) for _ in range(3))
    losses_of(whole)
    assert first.advance(lambda: first.step == cut) is None
    second.load_state(first.state())
    made = replaying.made
    losses_of(second)
    assert replaying.made == made + 1
    assert same_weights(whole.weights(), second.weights())


def test_another_loss_is_recorded_anew(replaying: type[Repeated]) -> None:
    arm = a_trial().arm
    scheduled = Loss("smooth_topk_svm", fixed={"tau": Schedule("linear", 1.0, 0.1)})
    changed = Arm(arm.regime, arm.model, scheduled, 3, a_recipe())
    losses_of(replaying_session(a_trial(arm=changed)))
    assert replaying.made == 3


def test_no_graphs_on_the_cpu_and_the_same_results() -> None:
    plain = trained(a_trial(recipe=Recipe(3)))
    record = completed(a_trial(recipe=a_recipe()))
    assert [epoch.train_loss for epoch in record.epochs] == [epoch.train_loss for epoch in plain.epochs]
    assert record.validation == plain.validation


@pytest.mark.parametrize(
    ("loss", "average", "ensemble", "message"),
    [
        ("cross_entropy", EMA(), 1, r"cuda_graphs .* cannot go with Recipe\.average"),
        ("early_learning", None, 1, r"remembers each .* does not go with Numerics\.cuda_graphs"),
        ("cross_entropy", None, 2, r"an ensemble cannot train with .*cuda_graphs"),
    ],
)
def test_what_no_graph_replays_is_refused(
    loss: str, average: EMA | None, ensemble: int, message: str
) -> None:
    arm, protocol = a_trial().arm, Protocol(ensemble=ensemble)
    with pytest.raises(ValueError, match=message):
        Arm(arm.regime, arm.model, Loss(loss), 3, a_recipe(average=average), protocol=protocol)


def without_graph(trial: Trial) -> Session:
    """The same session without a graph."""
    session = Session.prepare(trial)
    assert session.replay is not None
    session.replay.before = sys.maxsize
    return session


def deterministic(**changes: Any) -> Recipe:
    numerics = Numerics(cuda_graphs=True, deterministic=True, channels_last="augmentation" in changes)
    return a_recipe(numerics=numerics, **changes)


@pytest.mark.gpu
@pytest.mark.parametrize("loss", ["cross_entropy", "smooth_topk_svm", "noised_topk_hinge", "topk_transition"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_on_a_gpu_a_graph_trains_the_same_network(loss: str, optimizer: str) -> None:
    recipe = deterministic(optimizer=optimizer, learning_rate=0.01, clip_norm=1.0)
    trial = a_trial(loss, recipe=recipe, device="cuda")
    with trial_process(trial):
        usual, session = without_graph(trial), Session.prepare(trial)
        assert losses_of(session) == losses_of(usual)
    assert session.replay is not None and session.replay.graph is not None
    assert same_weights(usual.weights(), session.weights())


@pytest.mark.gpu
@pytest.mark.parametrize("network", [Model("convnet"), Model("resnet_small", {"depth": 8})])
def test_on_a_gpu_images_are_augmented_anew_in_each_replay(network: Model) -> None:
    recipe = deterministic(augmentation=CROPS, batch_size=32)
    trial = a_trial("noised_topk_hinge", regime=IMAGES_OF_TEN, model=network, recipe=recipe, device="cuda")
    with trial_process(trial):
        usual, session = without_graph(trial), Session.prepare(trial)
        assert losses_of(session) == losses_of(usual)
    assert torch.equal(session.batches.changes.get_state(), usual.batches.changes.get_state())
    assert torch.equal(session.loss.generator.get_state(), usual.loss.generator.get_state())


class Waits(nn.Module):
    """A network that waits for the GPU in every step."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.last = nn.Linear(64, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.last(inputs.flatten(1))
        return scores * (2.0 if scores.mean().item() > 1e9 else 1.0)


def waits(shape: tuple[int, ...], classes: int, head: str) -> nn.Module:
    return Waits(classes)


@pytest.mark.gpu
def test_on_a_gpu_a_network_that_waits_fails_by_name_and_harms_no_later_trial() -> None:
    trial = a_trial(model=Model(f"{__name__}:waits"), recipe=a_recipe(), device="cuda")
    record = trained(trial)
    assert record.status == "failed"
    assert "Numerics.cuda_graphs needs a step that never waits for the GPU" in record.reason
    completed(a_trial(recipe=a_recipe(), device="cuda"))


def test_the_error_is_a_users(monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[Any] = []
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: 0)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)
    with pytest.raises(UserError, match="never waits for the GPU"), rehearsed():
        raise RuntimeError("called a synchronizing CUDA operation")
    with pytest.raises(RuntimeError, match="shapes"), rehearsed():
        raise RuntimeError("shapes differ")
    assert modes == ["error", 0, "error", 0]


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
def test_a_recording_ends_before_a_replay_and_collects_nothing(enabled: bool, events: list[str]) -> None:
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
