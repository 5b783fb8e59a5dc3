"""Ray clusters by address: which are meant, how long each is waited for, and how much each holds."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import ray
from ray._private import ray_constants, services

from topk_platform import Loss, Model, Recipe, Regime, Study, grid, run
from topk_platform.errors import ClusterError
from topk_platform.running.cluster import capacity, reaching
from topk_platform.running.cluster import connecting as cluster
from topk_platform.running.cluster import connecting as starting
from topk_platform.running.cluster.connecting import own_ray
from topk_platform.running.cluster.lifeline import Lifeline
from topk_platform.running.cluster.ray_internals import messages_on_stderr, on_loopback
from topk_platform.running.cluster.reaching import Patience, is_loopback

AT_ONCE = Patience(0)
ARMS = grid([Regime("r", "digits")], [Model("linear")], [Loss("cross_entropy")], k=3, recipe=Recipe(1))
STUDY = Study("s", ARMS, topk=(1, 3))


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
    with (
        pytest.raises(ClusterError, match=message),
        cluster.connected(a_study(), address, None, AT_ONCE),
    ):
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setattr(services, "find_gcs_addresses", cache(set))  # whatever else runs on this machine
    for named in ("", "auto"):
        monkeypatch.setenv("RAY_ADDRESS", named)
        refused("auto", "no Ray cluster answers at 'auto': none runs on this machine")
    monkeypatch.delenv("RAY_ADDRESS")
    monkeypatch.setattr(services, "find_gcs_addresses", cache(lambda: {"127.0.0.1:7000", "10.0.0.1:6379"}))
    refused("auto", r"10\.0\.0\.1:6379, 127\.0\.0\.1:7000\. Give")


def test_a_ray_that_the_caller_has_joined_is_used_at_its_own_address_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    joined = SimpleNamespace(gcs_address="127.0.0.1:6379")
    monkeypatch.setattr(cluster.ray, "is_initialized", lambda: True)
    monkeypatch.setattr(cluster.ray, "get_runtime_context", lambda: joined)
    monkeypatch.setattr(cluster, "slots", lambda *_, **__: 2)
    for address in (None, "auto", "127.0.0.1:6379"):
        with cluster.connected(a_study(), address, None, AT_ONCE) as (slots, _):
            assert slots == 2
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


def test_what_connects_on_loopback_stays_there() -> None:
    near = ("127.0.0.1:6379", "127.1.2.3:6379", "localhost:6379", "[::1]:6379")
    assert all(map(is_loopback, near))
    assert not any(map(is_loopback, ("10.0.0.7:6379", "head:6379", "[2001:db8::7]:6379")))


def test_what_listens_on_loopback_alone_is_over_at_the_end() -> None:
    before = ray_constants.ENABLE_RAY_CLUSTER
    with on_loopback():
        assert not ray_constants.ENABLE_RAY_CLUSTER
    assert before == ray_constants.ENABLE_RAY_CLUSTER


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
    result = {path.name for name in names for path in cluster._shipped(a_study(loss=name))}
    assert result == {"topk_losses", "topk_platform", "single_lab.py", "parts_lab", "imported_lab.py"}


def nodes(*resources: dict[str, float]) -> list[dict[str, Any]]:
    return [{"Alive": True, "Resources": each} for each in resources] + [
        {"Alive": False, "Resources": {"CPU": 99}}
    ]


def test_a_trial_never_spans_two_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "nodes", lambda: nodes({"CPU": 3}, {"CPU": 5, "GPU": 2}))
    for study, expected in [
        (a_study(), 8),
        (a_study(threads=2), 3),
        (a_study(threads=4), 1),
        (a_study(device="cuda"), 2),
        (a_study(device="cuda", gpus=0.1), 5),
        (a_study(device="cuda", threads=3), 1),
    ]:
        assert capacity.slots(study, None, may_grow=False) == expected
    assert capacity.slots(a_study(), 3, may_grow=False) == 3
    assert capacity.slots(a_study(device="cuda", gpus=0.1), 99, may_grow=False) == 5
    assert capacity.slots(a_study(device="cuda", gpus=0.1), 99, may_grow=True) == 99
    for study in (a_study(threads=6), a_study(device="cuda", threads=6)):
        for workers, may_grow in ((None, False), (None, True), (2, False)):
            with pytest.raises(ClusterError, match="on one node, and the nodes have"):
                capacity.slots(study, workers, may_grow=may_grow, patience=AT_ONCE)


def test_a_kind_of_gpu_leaves_the_nodes_of_that_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = [{"CPU": 8, "GPU": 2, f"accelerator_type:{kind}": 1} for kind in ("T4", "L4", "L4")]
    monkeypatch.setattr(ray, "nodes", lambda: nodes(*kinds, {"CPU": 64}))
    for accelerator, expected in (("", 6), ("T4", 2), ("L4", 4)):
        study = a_study(device="cuda", accelerator=accelerator)
        assert capacity.slots(study, None, may_grow=False) == expected
    with pytest.raises(ClusterError, match=r"accelerator_type:A100'.* the nodes have .*accelerator_type:T4'"):
        capacity.slots(a_study(device="cuda", accelerator="A100"), None, may_grow=False)


def test_shares_are_rounded_down_for_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts ten thousandths, and would round a sixth up, of which five fit."""
    monkeypatch.setattr(ray, "nodes", lambda: nodes({"CPU": 64, "GPU": 1}))
    for trials in range(1, 40):
        assert capacity.slots(a_study(device="cuda", gpus=1 / trials), None, may_grow=False) == trials


@pytest.mark.parametrize(("share", "held"), [(0.6, 3), (0.5, 6), (0.4, 6), (1 / 3, 9), (0.1, 20)])
def test_a_trial_spans_no_two_gpus(share: float, held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "nodes", lambda: nodes({"CPU": 10, "GPU": 1}, {"CPU": 10, "GPU": 2}))
    assert capacity.slots(a_study(device="cuda", gpus=share), None, may_grow=False) == held


def test_a_node_that_is_on_its_way_is_waited_for_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    up, messages = [{"CPU": 0.0}], list[str]()
    monkeypatch.setattr(ray, "nodes", lambda: nodes(*up))
    patience = Patience(report=messages.append, sleep=lambda _: up.append({"CPU": 3.0}))
    assert capacity.slots(a_study(threads=2), None, may_grow=True, patience=patience) == 1
    (line,) = messages
    assert "needs {'CPU': 2}" in line and "{'CPU': 0.0, 'GPU': 0}" in line


def test_a_cluster_that_grows_is_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    up, asked = [{"CPU": 1.0}], Mock()
    monkeypatch.setattr(ray, "nodes", lambda: nodes(*up))
    monkeypatch.setattr(capacity, "request_resources", asked)
    patience = Patience(sleep=lambda _: up.append({"CPU": 8.0, "GPU": 1.0}))
    assert capacity.slots(a_study(device="cuda"), 5, may_grow=True, patience=patience) == 5
    assert [call.kwargs["bundles"] for call in asked.call_args_list] == [[{"CPU": 1, "GPU": 1.0}], []]


def failing(times: int, monkeypatch: pytest.MonkeyPatch, error: type[Exception] = Exception) -> list[str]:
    """Let Ray fail to start so many times, as on a busy machine; return the list of the folders of all tries."""
    folders: list[str] = []

    def init(*, _temp_dir: str, **_: Any) -> None:
        folders.append(_temp_dir)
        if len(folders) <= times:
            raise error("The current node timed out during startup.")

    monkeypatch.setattr(ray, "init", init)
    return folders


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(starting, "needed", dict)


def test_it_is_started_again(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    folders = failing(2, monkeypatch)
    with own_ray(STUDY, None) as line:
        assert isinstance(line, Lifeline)
    assert len(folders) == 3 and len(caplog.records) == 2


def test_after_three_tries_the_run_ends_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = failing(3, monkeypatch)
    with pytest.raises(ClusterError, match=r"3 tries \(the machine .* busy.*timed out"), own_ray(STUDY, None):
        pytest.fail("nothing has started")
    assert len(folders) == 3
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("error", "tries"), [(PermissionError, 1), (ModuleNotFoundError, 1), (ValueError, 2), (RuntimeError, 2)]
)
def test_only_what_may_pass_is_tried_again(
    error: type[Exception], tries: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray raises ValueError for a taken port and RuntimeError for a late answer, which the next try may not meet."""
    folders = failing(1, monkeypatch, error)
    if tries > 1:
        with own_ray(STUDY, None):
            pass
    else:
        with pytest.raises(ClusterError, match=r"^Ray cannot start: .*timed out"), own_ray(STUDY, None):
            pytest.fail("nothing has started")
    assert len(folders) == tries
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
    tokens = [starting._token.__wrapped__() for _ in range(2)]
    assert tokens == [{}, {}] if given else tokens[0] != tokens[1]
    assert given or [len(token["RAY_AUTH_TOKEN"]) for token in tokens] == [64, 64]
    assert given.startswith("~") or not list(tmp_path.glob(".ray"))
