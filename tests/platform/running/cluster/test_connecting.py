"""Ray clusters by address: which are meant, how long each is waited for, and how much each holds."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import ray

from topk_platform import Loss, Model, Recipe, Regime, Study, grid, run
from topk_platform.errors import ClusterError
from topk_platform.running.cluster import connecting, reaching
from topk_platform.running.cluster import nodes as machines
from topk_platform.running.cluster.connecting import connected
from topk_platform.running.cluster.nodes import slots
from topk_platform.running.cluster.ray_internals import messages_on_stderr
from topk_platform.running.cluster.reaching import Patience

AT_ONCE = Patience(0)


def a_study(**changes: Any) -> Study:
    loss = Loss(changes.pop("loss", "cross_entropy"))
    arms = grid([Regime("plain", "digits")], [Model("mlp")], [loss], k=3, recipe=Recipe(epochs=1))
    return Study("s", arms, topk=(3,), **changes)


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address at which nobody listens, nor will as long as the test lasts."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


def refused(address: str, message: str) -> None:
    with pytest.raises(ClusterError, match=message), connected(a_study(), address, None, AT_ONCE):
        pytest.fail("connected")


@pytest.mark.parametrize(
    "address",
    ["", "head", "local", "head:", ":6379", "head:70000", "head:port", "ray://head:10001", "a b:1", "a:1:2"],
)
def test_a_malformed_address_is_refused(address: str) -> None:
    refused(address, "--address must be host:port")


def test_a_host_that_does_not_exist() -> None:
    refused("nowhere.invalid:6379", r"no Ray cluster answers at 'nowhere\.invalid:6379'")


def test_nobody_at_an_address_is_reported_before_anything_is_written(nobody: str, tmp_path: Path) -> None:
    store = tmp_path / "s"
    with pytest.raises(ClusterError, match=f"no Ray cluster answers at '{nobody}': .*refused") as caught:
        run(a_study(), store=store, address=nobody, wait=0)
    assert "\n" not in str(caught.value)
    assert not store.exists()


def test_auto_is_the_address_in_the_environment(nobody: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", nobody)
    refused("auto", f"no Ray cluster answers at '{nobody}'")
    for named in ("local", "ray://10.0.0.1:10001"):
        monkeypatch.setenv("RAY_ADDRESS", named)
        refused("auto", f"RAY_ADDRESS, .*got '{named}'")


def test_auto_without_a_cluster_or_where_it_could_mean_several(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reaching, "known_heads", set)  # whatever else runs on this machine
    for named in ("", "auto"):
        monkeypatch.setenv("RAY_ADDRESS", named)
        refused("auto", "no Ray cluster answers at 'auto': none runs here")
    monkeypatch.delenv("RAY_ADDRESS")
    monkeypatch.setattr(reaching, "known_heads", lambda: {"127.0.0.1:7000", "10.0.0.1:6379"})
    refused("auto", r"10\.0\.0\.1:6379 or 127\.0\.0\.1:7000: give")


def test_a_ray_that_the_caller_has_joined_is_used_at_its_own_address_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    joined = SimpleNamespace(gcs_address="127.0.0.1:6379")
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: joined)
    for address in (None, "auto", "127.0.0.1:6379"):
        with connected(a_study(), address, None, AT_ONCE):
            pass
    for address in ("10.0.0.1:6379", "127.0.0.1:7000"):
        refused(address, r"has already joined the Ray cluster at '127\.0\.0\.1:6379'")


def test_what_ray_says_in_the_driver_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    published = {"lines": ["A worker died or was killed."], "pid": "raylet", "is_err": False}
    with messages_on_stderr():
        ray._private.worker.print_to_stdstream(published, ignore_prefix=False)
    out, err = capsys.readouterr()
    assert out == "" and "A worker died" in err
    ray._private.worker.print_to_stdstream({**published, "lines": ["Another."]}, ignore_prefix=False)
    assert "Another." in capsys.readouterr().out


@pytest.mark.slow
def test_something_else_that_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaching, "_ANSWER_SECONDS", 3)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        refused(address, f"no Ray cluster answers at '{address}' within 3 s")


def test_what_modules_import_is_shipped_and_installed_packages_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, source in {
        "single_lab.py": "def loss(): ...",
        "imported_lab.py": "",
        "parts_lab/__init__.py": "",
        "parts_lab/parts.py": "def loss():\n    import imported_lab",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    names = ["torch.nn:CrossEntropyLoss", "single_lab:loss", "parts_lab.parts:loss", "math:floor"]
    result = {path.name for name in names for path in connecting._shipped(a_study(loss=name))}
    assert result == {"topk_losses", "topk_platform", "single_lab.py", "parts_lab", "imported_lab.py"}


def nodes(*resources: dict[str, float]) -> list[dict[str, Any]]:
    return [{"Alive": True, "Resources": each} for each in resources] + [
        {"Alive": False, "Resources": {"CPU": 99}}
    ]


KINDS = [{"CPU": 8, "GPU": 2, f"accelerator_type:{kind}": 1} for kind in ("T4", "L4", "L4")]


@pytest.mark.parametrize(
    ("there", "study", "held"),
    [
        ([{"CPU": 3}, {"CPU": 5, "GPU": 2}], {}, 8),  # a trial never spans two nodes
        ([{"CPU": 3}, {"CPU": 5, "GPU": 2}], {"threads": 2}, 3),
        ([{"CPU": 3}, {"CPU": 5, "GPU": 2}], {"threads": 4}, 1),
        ([{"CPU": 3}, {"CPU": 5, "GPU": 2}], {"device": "cuda"}, 2),
        ([{"CPU": 3}, {"CPU": 5, "GPU": 2}], {"device": "cuda", "gpus": 0.1}, 5),
        ([{"CPU": 3}, {"CPU": 5, "GPU": 2}], {"device": "cuda", "threads": 3}, 1),
        (KINDS, {"device": "cuda"}, 6),
        (KINDS, {"device": "cuda", "accelerator": "T4"}, 2),
        (KINDS, {"device": "cuda", "accelerator": "L4"}, 4),
        *(  # nor two GPUs
            ([{"CPU": 10, "GPU": 1}, {"CPU": 10, "GPU": 2}], {"device": "cuda", "gpus": share}, held)
            for share, held in ((0.6, 3), (0.5, 6), (0.4, 6), (1 / 3, 9), (0.1, 20))
        ),
        # Ray counts ten thousandths, and would round a sixth up, of which five fit.
        *(([{"CPU": 64, "GPU": 1}], {"device": "cuda", "gpus": 1 / n}, n) for n in range(1, 40)),
    ],
)
def test_as_many_trials_run_at_once_as_fit(
    there: list[dict[str, float]], study: dict[str, Any], held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "nodes", lambda: nodes(*there))
    assert slots(a_study(**study), None) == slots(a_study(**study), 99) == held
    assert slots(a_study(**study), 1) == 1 and slots(a_study(**study), 99, AT_ONCE) == 99


@pytest.mark.parametrize(("workers", "patience"), [(None, None), (None, AT_ONCE), (2, None), (2, AT_ONCE)])
def test_a_trial_that_fits_nowhere_is_refused_with_what_there_is(
    workers: int | None, patience: Patience | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "nodes", lambda: nodes(*KINDS))
    monkeypatch.setattr(machines, "request_resources", Mock())
    study = a_study(device="cuda", accelerator="A100")
    why = r"accelerator_type:A100'.* on one node, and the nodes have .*accelerator_type:T4'"
    with pytest.raises(ClusterError, match=why):
        slots(study, workers, patience)


def test_a_node_that_is_on_its_way_is_waited_for_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    up, messages = [{"CPU": 0.0}], list[str]()
    monkeypatch.setattr(ray, "nodes", lambda: nodes(*up))
    monkeypatch.setattr(reaching.time, "sleep", lambda _: up.append({"CPU": 3.0}))
    assert slots(a_study(threads=2), None, Patience(say=messages.append)) == 1
    (line,) = messages
    assert "needs {'CPU': 2}" in line and "[{'CPU': 0.0}]" in line


def test_a_cluster_that_grows_is_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    up, asked = [{"CPU": 1.0}], Mock()
    monkeypatch.setattr(ray, "nodes", lambda: nodes(*up))
    monkeypatch.setattr(machines, "request_resources", asked)
    monkeypatch.setattr(reaching.time, "sleep", lambda _: up.append({"CPU": 8.0, "GPU": 1.0}))
    assert slots(a_study(device="cuda"), 5, Patience()) == 5
    assert [call.kwargs["bundles"] for call in asked.call_args_list] == [[{"CPU": 1, "GPU": 1.0}], []]


@pytest.mark.parametrize("failing", [2, 3])
@pytest.mark.parametrize(
    "error", [ValueError, RuntimeError]
)  # for a port that was taken, and for a late answer
def test_our_own_is_started_again_twice_and_then_the_run_ends_with_one_line(
    failing: int,
    error: type[Exception],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As on a busy machine, on which Ray gives up after 30 seconds."""
    init = Mock(side_effect=[*[error("The current node timed out during startup.")] * failing, None])
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setattr(ray, "init", init)
    here = SimpleNamespace(get_node_id=lambda: "here", gcs_address="127.0.0.1:1")
    monkeypatch.setattr(ray, "get_runtime_context", lambda: here)
    node = {"NodeID": "here", "NodeManagerAddress": "127.0.0.1", "NodeManagerPort": 1}
    monkeypatch.setattr(ray, "nodes", lambda: [node])
    refusal = pytest.raises(ClusterError, match=r"^Ray cannot start: .*timed out.* \(.*busy")
    with nullcontext() if failing < 3 else refusal, connected(a_study(), None, None, AT_ONCE):
        assert failing < 3
    assert init.call_count == 3 and len(caplog.records) == 2
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    "given", ["RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE", "~/.ray/auth_token", ""]
)
def test_it_has_a_token_of_this_process_unless_there_is_one_or_none_is_wanted(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    if given.startswith("~"):
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray/auth_token").write_text("a token")
    elif given:
        monkeypatch.setenv(given, "disabled")
    tokens = [connecting._token.__wrapped__() for _ in range(2)]
    assert tokens == [{}, {}] if given else tokens[0] != tokens[1]
    assert given or [len(token["RAY_AUTH_TOKEN"]) for token in tokens] == [64, 64]
    assert given.startswith("~") or not list(tmp_path.glob(".ray"))
