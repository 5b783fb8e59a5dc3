"""Each check of a cluster's nodes, by what they may say of themselves; the real thing: end_to_end/test_doctor.py."""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from ray.exceptions import GetTimeoutError

from topk_platform import Float, Loss, Model, Recipe, Regime, Study, grid
from topk_platform.errors import UserError
from topk_platform.records import Store
from topk_platform.records.storage.folder import Folder
from topk_platform.running.preflight.nodes import asking
from topk_platform.running.preflight.nodes.asking import check_cluster, check_store
from topk_platform.running.preflight.nodes.checks import Finding, Node, check_bits, check_node
from topk_platform.running.preflight.nodes.facts import ABSENT, Facts, Question, examine, now
from topk_platform.running.preflight.nodes.gpus import Gpu, gpus_here

GIB = 2**30
BITS = {"torch": "2.15.0", "machine": "a mainframe", "losses": "numba 0.68.1"}
VERSIONS = {
    "torch": "2.15.0",
    "torchvision": "0.29.2",
    "numba": "0.68.1",
    "ray": "2.60.0",
    "optuna": "5.0.0",
    "rich": "15.0.0",
}
SOUND = Facts(
    python="3.12.1",
    packages=VERSIONS,
    environment=BITS,
    code="c0de",
    data={"birds": "f1"},
    free={"temporary files": 50 * GIB},
)
NODE = Node("10.0.0.2", SOUND)
NODE_OF_RAY = {"NodeID": "4f2a1c00", "NodeManagerAddress": "10.0.0.2", "Resources": {}}
WANTED = {"torch": ">=2.10", "optuna": ">=5.0,<5.1", "rich": ">=14"}
FREE, BUSY, SMALL = Gpu("H200", 140 * GIB, 139 * GIB), Gpu("H200", 140 * GIB, 20 * GIB), Gpu("L4", GIB, GIB)


def checked(node: Node = NODE, **changes: Any) -> list[Finding]:
    return check_node(SOUND, node, replace(SOUND, **changes), WANTED, "/data")


def packaged(**changes: str) -> dict[str, Any]:
    return {"packages": {**VERSIONS, **changes}}


@pytest.mark.parametrize(
    ("changes", "check", "named", "remedy"),
    [
        ({"python": "3.12.2"}, "python", "3.12.2, the driver's is 3.12.1", "3.12.1"),
        (packaged(optuna="4.9.0"), "versions", "optuna 4.9.0", "pip install 'optuna>=5.0,<5.1'"),
        (packaged(rich=ABSENT), "versions", "rich not installed", "pip install 'rich>=14'"),
        (packaged(torch="2.14.0"), "versions", "torch 2.14.0", "there: pip install 'torch==2.15.0'"),
        (packaged(numba=ABSENT), "versions", "numba not installed", "pip install 'numba==0.68.1'"),
        ({"code": "beef"}, "code", "beef, the driver's is c0de", "topk-studies"),
        ({"code": "", "problems": {"code": "no such file"}}, "code", "no such file", "topk-studies"),
        ({"problems": {"reference mine:net": "no timm"}}, "modules", "no timm", "there"),
        ({"data": {"birds": "f2"}}, "data", "birds: fingerprint f2, the driver's is f1", "/data"),
        ({"data": {"birds": ""}, "problems": {"data birds": "no folder"}}, "data", "no folder", "/data"),
        ({"free": {"temporary files": GIB // 2}}, "disk", "0.5 GiB", "free some"),
    ],
)
def test_what_is_wrong_with_a_node_is_reported_with_its_remedy(
    changes: dict[str, Any], check: str, named: str, remedy: str
) -> None:
    (result,) = checked(**changes)
    assert (result.check, result.node, result.wrong) == (check, NODE.name, True)
    assert named in result.finding and remedy in result.remedy


def test_nothing_is_reported_of_a_sound_node_and_of_versions_that_matter_little() -> None:
    assert checked() == checked(**packaged(rich="14.1.0")) == []


@pytest.mark.parametrize(
    ("gpus", "promised", "wrong", "finding"),
    [
        ((BUSY,), 1, False, "H200, 20 of 140 GiB free"),
        ((FREE,), 2, True, "Ray counts 2 here, and torch finds 1"),
        ((FREE, SMALL), 2, True, "of several kinds: H200, L4"),
    ],
)
def test_gpus_that_are_promised_are_there_free_and_of_one_kind(
    gpus: tuple[Gpu, ...], promised: int, wrong: bool, finding: str
) -> None:
    (result,) = checked(replace(NODE, gpus=promised), gpus=gpus)
    assert (result.check, result.finding, result.wrong) == ("gpus", finding, wrong) and result.remedy
    assert checked(replace(NODE, gpus=1), gpus=(FREE,)) == []


def test_gpus_that_torch_cannot_use_are_reported() -> None:
    (result,) = checked(replace(NODE, gpus=1), problems={"gpus": "torch can use none: old driver"})
    assert result.finding == "Ray counts 1 here, and torch can use none: old driver" and result.wrong


@pytest.mark.parametrize(("behind", "said"), [(60.0, []), (-600.0, ["600 s ahead of the driver's"])])
def test_clocks_agree_within_what_object_stores_take(behind: float, said: list[str]) -> None:
    assert [one.finding for one in checked(replace(NODE, behind=behind))] == said


def compared(driver: Facts, device: str, **nodes: Facts) -> list[tuple[str, str]]:
    answered = [(Node(name, facts), facts) for name, facts in nodes.items()]
    wrong = [one for one in check_bits(answered, driver, device) if one.wrong and one.remedy]
    return [(one.node, one.finding) for one in wrong]


def test_of_machines_that_compute_other_bits_the_few_are_reported_and_of_two_the_drivers_kind() -> None:
    other = replace(SOUND, environment={**BITS, "machine": "a laptop"})
    assert compared(other, "cpu", a=SOUND, b=other, c=SOUND) == [("b", "machine a laptop, not a mainframe")]
    assert compared(SOUND, "cpu", a=SOUND, b=other) == [("b", "machine a laptop, not a mainframe")]
    assert compared(other, "cpu", a=SOUND, b=other) == [("a", "machine a mainframe, not a laptop")]


def test_a_machine_without_a_gpu_is_not_asked_for_the_bits_of_a_study_for_gpus_which_needs_one() -> None:
    worker = replace(SOUND, gpus=[FREE], environment={**BITS, "machine": "H200"})
    assert compared(SOUND, "cuda", head=SOUND, w=worker) == []
    assert compared(SOUND, "cuda", head=SOUND) == [("all", "the study needs a GPU and no machine has one")]


def test_a_torch_that_cannot_be_imported_is_reported() -> None:
    facts = replace(SOUND, environment={}, problems={"environment": "libcudart.so.13: cannot open"})
    (result,) = compared(SOUND, "cpu", n=facts)
    assert result == ("n", "torch cannot report its environment: libcudart.so.13: cannot open")


@pytest.fixture
def late_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster of a node that answers the questions, but not the one for its time."""

    def get(answer: str, **_: float) -> str:
        if answer == "time":
            raise GetTimeoutError("Get timed out: some object(s) not ready.")
        return answer

    monkeypatch.setattr(asking.ray, "nodes", lambda: [{**NODE_OF_RAY, "Alive": True}])
    monkeypatch.setattr(asking.ray, "wait", lambda asked, **_: (asked, []))
    monkeypatch.setattr(asking.ray, "get", get)
    monkeypatch.setattr(asking, "_on", lambda _node, function, *_: "time" if function is now else "facts")


def test_a_node_that_is_late_only_with_its_time_keeps_its_other_answers(late_clock: None) -> None:
    (node,) = asking.ask_nodes(Question([]), 60.0)
    assert (node.facts, node.problem, node.behind) == ("facts", "", 0.0)


# The store


def replies(store: Store | None, *nodes: Node) -> list[str]:
    return [one.finding for one in asking._replies(store, nodes)]


def answer(store: Store, name: str, address: str | None = None) -> Facts:
    return examine(Question([], store=address or store.existing.address, token=name))


def test_what_a_node_writes_is_seen_and_nothing_is_left(tmp_path: Path) -> None:
    store, wrong = check_store(tmp_path / "not" / "yet")
    assert store is not None and wrong == []
    with asking._token(store) as name:
        assert replies(store, Node("n", answer(store, name))) == []
    assert not list(tmp_path.iterdir())


def test_a_node_with_a_folder_of_its_own_does_not_see_the_file(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    store, _ = check_store(tmp_path / "here")
    assert store is not None
    with asking._token(store) as name:
        blind = answer(store, name, str(tmp_path / "there"))
        (tmp_path / "there" / name).write_text(name)  # the reverse: it sees the driver's and writes elsewhere
        deaf = answer(store, name, str(tmp_path / "there"))
        result = replies(store, Node("blind", blind), Node("deaf", deaf), Node("silent", None))
    assert ["missing there" in one for one in result] == [True, False] and "does not see" in result[1]


def test_a_store_that_cannot_be_written_is_a_finding() -> None:
    store, (wrong,) = check_store("/proc/runs")
    assert store is None and wrong.wrong and "cannot be written" in wrong.finding
    with asking._token(store) as name:
        assert name == "" and replies(store, NODE) == []


def test_a_server_without_conditional_writes_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = Folder.put

    def forgets(folder: Folder, name: str, data: Any, **options: Any) -> Any:
        return put(folder, name, data)

    monkeypatch.setattr(Folder, "put", forgets)
    _, (wrong,) = check_store(tmp_path)
    assert wrong.wrong and "lets two processes create the same file" in wrong.finding


def test_an_object_store_is_one_place(bucket: str) -> None:
    store, wrong = check_store(bucket)
    assert store is not None and wrong == []
    with asking._token(store) as name:
        assert replies(store, Node("n", answer(store, name))) == []
    assert Store.open(bucket)._list("")["objects"] == []


# GPUs, by stand-ins


def program(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(file.stat().st_mode | stat.S_IEXEC)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that goes first in the path, in which this process's Python is looked for."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path


def test_no_gpu_is_looked_for_where_none_is_reported(programs: Path) -> None:
    assert gpus_here(0) == []


def test_gpus_are_those_that_torch_can_use(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(programs, "nvidia-smi", "echo '0, 570.86.10'")
    answer = json.dumps([{"name": "H200", "memory": 2, "free": 1, "environment": BITS}])
    program(programs, "python", f"[ -z \"${{CUDA_VISIBLE_DEVICES+x}}\" ] && echo '{answer}'")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # as Ray leaves it to a process that asked for none
    assert gpus_here(0) == [Gpu("H200", 2, 1, BITS)]


def test_a_gpu_whose_memory_the_driver_does_not_know_is_looked_at_by_torch(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU that shares the processor's memory: every field but its number, name and driver is ``[N/A]``."""
    known = "index) echo -n 0;; name) echo -n GB10;; driver_version) echo -n 580.95.05;; *) echo -n '[N/A]';;"
    each = f"echo -n \"$sep\"; sep=', '; case $field in {known} esac"
    rows = f"sep=; IFS=,; for field in ${{1#*=}}; do {each}; done; echo"
    program(programs, "nvidia-smi", rows)
    answer = json.dumps([{"name": "GB10", "memory": 2, "free": 1, "environment": BITS}])
    program(programs, "python", f"echo '{answer}'")
    assert gpus_here(0) == [Gpu("GB10", 2, 1, BITS)]


def test_each_slice_of_mig_is_looked_at_by_a_process_of_its_own(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing = "GPU 0: H100 (UUID: GPU-1)\n  MIG 1g.10gb Device 0: (UUID: MIG-a)\n  MIG 1g.10gb Device 1: (UUID: MIG-b)"
    row = "0, 570.86.10"
    program(programs, "nvidia-smi", f"if [ $1 = -L ]; then echo '{listing}'; else echo '{row}'; fi")
    answer = '[{"name": "\'$CUDA_VISIBLE_DEVICES\'", "memory": 2, "free": 1, "environment": {}}]'
    program(programs, "python", f"echo '{answer}'")
    assert [gpu.name for gpu in gpus_here(2)] == ["MIG-a", "MIG-b"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-b")
    assert [gpu.name for gpu in gpus_here(1)] == ["MIG-b"]


@pytest.mark.parametrize(
    ("smi", "torch", "why"),
    [
        ("echo 'Failed to initialize NVML'; exit 18", "", "nvidia-smi says: Failed"),
        ("echo '0, 470.1'", "echo 'driver too old' >&2; exit 1", "torch can use none: driver too old"),
    ],
)
def test_a_broken_driver_is_reported(smi: str, torch: str, why: str, programs: Path) -> None:
    program(programs, "nvidia-smi", smi)
    program(programs, "python", torch or ":")
    facts = examine(Question(packages=[]))
    assert facts.problems["gpus"].startswith(why)


# The whole, with this machine in the place of a cluster


def a_study(**data: Any) -> Study:
    rate = {"learning_rate": Float(0.01, 1)}
    losses = [Loss("cross_entropy", rate, {"learning_rate": 0.1})]
    arms = grid([Regime("r", **data)], [Model("linear")], losses, k=1, recipe=Recipe(1))
    return Study("s", arms, topk=(1,))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> list[Node]:
    """Nodes beside one that answers as this machine does."""
    nodes: list[Node] = []

    def ask(question: Question, _patience: float) -> Iterator[Node]:
        yield from (Node("here", examine(question)), *nodes)

    monkeypatch.setattr(asking, "joined", lambda *_: nullcontext())
    monkeypatch.setattr(asking, "ask_nodes", lambda *given: list(ask(*given)))
    monkeypatch.setattr(asking, "_open_to_all", lambda: ())
    return nodes


@pytest.mark.usefixtures("cluster")
def test_of_a_sound_cluster_nothing_is_said_and_nothing_is_written(tmp_path: Path) -> None:
    assert check_cluster(a_study(dataset="digits"), "auto", store=tmp_path / "runs", data=tmp_path) == []
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("cluster")
def test_missing_data_and_a_server_that_is_down_are_findings(tmp_path: Path) -> None:
    study = a_study(dataset="image_folder", options={"folder": "birds", "size": 8})
    mlflow = "http://me:s3cr3t@127.0.0.1:9"
    result = check_cluster(study, "auto", store=tmp_path, data=tmp_path, mlflow_uri=mlflow)
    wrong = {one.check: one.finding for one in result if one.wrong}
    assert set(wrong) == {"data", "tracking"}
    assert "http://me:***@127.0.0.1:9" in wrong["tracking"] and "s3cr3t" not in wrong["tracking"]


def test_a_node_that_leaves_while_it_is_asked_is_only_to_note(cluster: list[Node], tmp_path: Path) -> None:
    """Unless no other one answers."""
    cluster += [Node("b", None, "left", lost=True), Node("c", None, "is mute")]
    result = check_cluster(a_study(dataset="digits"), "auto", store=tmp_path / "runs", data=tmp_path)
    assert [(one.node, one.wrong) for one in result] == [("b", False), ("c", True)]


@pytest.mark.usefixtures("cluster")
def test_the_command_prints_the_plan_and_what_is_wrong_and_has_an_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topk: Callable[..., tuple[int, str, str]]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = topk("plan", "digits", "--address", "auto")
    assert code == 0 and "trials left" in out and "Nothing is wrong" in out and "WRONG" not in out
    code, out, _ = topk("plan", "digits", "--address", "auto", "--store", "/proc/x", "--json")
    assert code == 1 and [one["check"] for one in json.loads(out)["findings"]] == ["store"]

    refuse = Mock(side_effect=UserError("arm a: its loss has no gradient"))
    monkeypatch.setattr("topk_platform.cli.commands.plan.plan_study", refuse)
    code, out, _ = topk("plan", "digits", "--address", "auto", "--store", "/proc/x")
    lines = [line.split()[1] for line in out.splitlines() if line.startswith("WRONG")]
    assert (code, lines) == (1, ["study", "store"]) and "its loss has no gradient" in out


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--address", "nowhere"), "--address"),
        (("--address", "auto", "--store", " "), "--store"),
        (("--address", "auto", "--data", ""), "--data"),
        (("--mlflow", "http://127.0.0.1:9"), "--mlflow"),
    ],
)
def test_what_was_typed_wrong_is_no_finding(
    arguments: Sequence[str], named: str, topk: Callable[..., tuple[int, str, str]]
) -> None:
    code, _, err = topk("plan", "digits", *arguments)
    assert code == 2 and named in err


def test_a_file_of_these_checks_has_a_name_that_no_listing_shows() -> None:
    assert asking._a_name().startswith(".")
