"""Each check of `topk doctor`, by what machines may say of themselves; the real thing: end_to_end/test_doctor.py."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ray.exceptions import GetTimeoutError

from topk_platform import Float, Loss, Model, Recipe, Regime, Study, grid
from topk_platform.cli import main
from topk_platform.errors import UserError
from topk_platform.records import Store
from topk_platform.records.storage.folder import Folder
from topk_platform.running.preflight.doctor import (
    CheckResult,
    Diagnosis,
    Node,
    asking,
    checks,
    diagnose,
    shared_store,
)
from topk_platform.running.preflight.doctor.diagnosis import _Asked, _of_nodes
from topk_platform.running.preflight.doctor.facts import ABSENT, Facts, Question, examine, now
from topk_platform.running.preflight.doctor.gpus import Gpu, gpus_here, mps_runs
from topk_platform.running.preflight.doctor.results import merged
from topk_platform.running.preflight.doctor.shared_store import check_replies, check_store, token

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
    host="h",
    system="Linux",
    python="3.12.1",
    packages=VERSIONS,
    environment=BITS,
    code="c0de",
    data={"birds": "f1"},
    files=["birds"],
    cores=4,
    memory=8 * GIB,
    free={"temporary files": 50 * GIB},
)
NODE = Node("10.0.0.2", SOUND)
NODE_OF_RAY = {"NodeID": "4f2a1c00", "NodeManagerAddress": "10.0.0.2", "Resources": {}}
WANTED = {"torch": ">=2.10", "optuna": ">=5.0,<5.1", "rich": ">=14"}


def only(results: Iterable[CheckResult]) -> CheckResult:
    (result,) = results
    return result


def state_and_text(result: CheckResult) -> tuple[str, str]:
    assert bool(result.remedy) == (result.state != "good")
    assert result.nodes
    return result.state, result.finding


def test_python_is_the_drivers() -> None:
    assert state_and_text(only(checks.check_python(SOUND, NODE, SOUND))) == ("good", "3.12.1")
    other = replace(SOUND, python="3.12.2")
    assert state_and_text(only(checks.check_python(SOUND, NODE, other))) == (
        "wrong",
        "3.12.2, the driver's is 3.12.1",
    )


@pytest.mark.parametrize(
    ("changes", "actual", "remedy"),
    [
        (
            {"optuna": "4.9.0"},
            "optuna 4.9.0, the platform takes >=5.0,<5.1",
            "pip install 'optuna>=5.0,<5.1'",
        ),
        ({"rich": ABSENT}, "rich not installed, the platform takes >=14", "pip install 'rich>=14'"),
        ({"torch": "2.14.0"}, "torch 2.14.0, the driver's is 2.15.0", "there: pip install 'torch==2.15.0'"),
        (
            {"numba": ABSENT},
            "numba not installed, the driver's is 0.68.1",
            "there: pip install 'numba==0.68.1'",
        ),
    ],
)
def test_versions_are_those_that_the_platform_takes_and_where_it_matters_the_drivers(
    changes: dict[str, str], actual: str, remedy: str
) -> None:
    facts = replace(SOUND, packages={**VERSIONS, **changes})
    result = only(checks.check_versions(SOUND, NODE, facts, WANTED))
    assert (result.state, result.finding, result.remedy) == ("wrong", actual, remedy)


@pytest.mark.parametrize(("mode", "open_"), [(0o600, False), (0o640, True), (0o604, True)])
def test_a_token_that_others_can_read_is_reported(
    mode: int, open_: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / ".ray" / "auth_token"
    file.parent.mkdir()
    file.write_text("secret")
    file.chmod(mode)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    assert examine(Question([])).open_token == ""
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    facts = examine(Question([]))
    assert facts.open_token == (str(file) if open_ else "")
    result = list(checks.check_token(NODE, facts))
    if open_:
        assert state_and_text(only(result)) == (
            "warning",
            f"others can read {file}, and so run code on the cluster",
        )
    else:
        assert result == []


def test_versions_that_matter_little_may_differ() -> None:
    facts = replace(SOUND, packages={**VERSIONS, "rich": "14.1.0"})
    assert only(checks.check_versions(SOUND, NODE, facts, WANTED)).state == "good"


def test_of_machines_that_compute_other_bits_the_few_are_reported() -> None:
    other = replace(SOUND, environment={**BITS, "machine": "a laptop"})
    nodes = [(Node(name, facts), facts) for name, facts in (("a", SOUND), ("b", other), ("c", SOUND))]
    states = {result.nodes[0]: state_and_text(result) for result in checks.check_bits(nodes, other, "cpu")}
    assert states["b"] == ("wrong", "machine a laptop, not a mainframe")
    assert states["a"] == states["c"] == ("good", "2.15.0, a mainframe, numba 0.68.1")


@pytest.mark.parametrize(("driver", "wrong"), [("a mainframe", "b"), ("a laptop", "a")])
def test_of_two_that_differ_the_drivers_kind_is_right(driver: str, wrong: str) -> None:
    other = replace(SOUND, environment={**BITS, "machine": "a laptop"})
    here = replace(SOUND, environment={**BITS, "machine": driver})
    nodes = [(Node(name, facts), facts) for name, facts in (("a", SOUND), ("b", other))]
    actual = {result.nodes[0] for result in checks.check_bits(nodes, here, "cpu") if result.state == "wrong"}
    assert actual == {wrong}


def test_a_machine_without_a_gpu_is_not_asked_for_the_bits_of_a_study_for_gpus() -> None:
    gpu = Gpu("H200", 140 * GIB, 139 * GIB)
    worker = replace(SOUND, gpus=[gpu], environment={**BITS, "machine": "H200"})
    nodes = [(Node("head", SOUND), SOUND), (Node("w", worker), worker)]
    assert [result.nodes for result in checks.check_bits(nodes, SOUND, "cuda")] == [["w"]]


def test_a_torch_that_cannot_be_imported_is_reported() -> None:
    facts = replace(SOUND, environment={}, problems={"environment": "libcudart.so.13: cannot open"})
    result = only(checks.check_bits([(NODE, facts)], SOUND, "cpu"))
    assert state_and_text(result) == (
        "wrong",
        "torch cannot report its environment: libcudart.so.13: cannot open",
    )


def test_code_is_the_drivers() -> None:
    assert state_and_text(only(checks.check_code(SOUND, NODE, SOUND))) == ("good", "version c0de")
    other = only(checks.check_code(SOUND, NODE, replace(SOUND, code="beef")))
    assert state_and_text(other) == ("wrong", "version beef, the driver's is c0de")
    unread = only(checks.check_code(SOUND, NODE, replace(SOUND, code="", problems={"code": "no such file"})))
    assert state_and_text(unread) == ("wrong", "cannot be read: no such file")


def test_modules_can_be_imported() -> None:
    facts = replace(SOUND, problems={"reference mine:net": "module 'mine' raised ImportError: no timm"})
    assert state_and_text(only(checks.check_modules(NODE, facts, ["mine:net", "mine:loss"])))[0] == "wrong"
    assert state_and_text(only(checks.check_modules(NODE, SOUND, ["mine:net"]))) == ("good", "mine:net")
    assert not list(checks.check_modules(NODE, SOUND, []))


@pytest.mark.parametrize(
    ("facts", "state", "actual"),
    [
        (SOUND, "good", "birds: fingerprint f1"),
        (replace(SOUND, data={"birds": "f2"}), "wrong", "birds: fingerprint f2, the driver's is f1"),
        (
            replace(SOUND, data={"birds": ""}, problems={"data birds": "no folder"}),
            "wrong",
            "birds: no folder",
        ),
    ],
)
def test_data_are_the_drivers(facts: Facts, state: str, actual: str) -> None:
    result = only(checks.check_data(SOUND, NODE, facts, "/data"))
    assert state_and_text(result) == (state, actual)
    assert result.remedy.startswith("correct this on that machine") == ("data birds" in facts.problems)


@pytest.mark.parametrize(
    ("files", "state", "result"),
    [
        (["birds"], "good", "/data holds 1 files or folders; name a STUDY to have its data read"),
        (["birds", "bees"], "wrong", "/data is not the driver's: bees"),
        (None, "wrong", "/data is not the driver's: birds"),
    ],
)
def test_without_a_study_the_folder_of_datasets_is_compared(
    files: list[str] | None, state: str, result: str
) -> None:
    driver = replace(SOUND, data={})
    assert state_and_text(only(checks.check_data(driver, NODE, replace(driver, files=files), "/data"))) == (
        state,
        result,
    )


def test_gpus_that_are_promised_are_there_and_free() -> None:
    def actual(*gpus: Gpu, promised: float = 0, **changes: Any) -> list[tuple[str, str]]:
        facts = replace(SOUND, gpus=gpus, **changes)
        results = map(state_and_text, checks.check_gpus(replace(NODE, gpus=promised), facts, "cpu"))
        return [result for result in results if "MPS" not in result[1]]

    free, busy = Gpu("H200", 140 * GIB, 139 * GIB, "570.86"), Gpu("H200", 140 * GIB, 20 * GIB)
    assert actual() == [("good", "none")]
    assert actual(free, promised=1) == [("good", "H200, 139 of 140 GiB free, driver 570.86")]
    assert actual(busy, promised=1) == [("warning", "H200, 20 of 140 GiB free")]
    assert actual(free, promised=2) == [("wrong", "Ray counts 2 here, and torch finds 1")]
    assert actual(promised=1, problems={"gpus": "torch can use none: old driver"}) == [
        ("wrong", "Ray counts 1 here, and torch can use none: old driver")
    ]
    mixed = actual(free, Gpu("L4", 24 * GIB, 24 * GIB), promised=2)
    assert mixed[-1] == ("wrong", "of several kinds: H200, L4")


@pytest.mark.parametrize(
    ("mps", "shared", "state", "result"),
    [
        (True, True, "good", "MPS runs: trials on one GPU compute side by side"),
        (False, False, "good", "MPS does not run: trials on one GPU take turns"),
        (False, True, "warning", "MPS does not run: trials on one GPU take turns"),
    ],
)
def test_whether_mps_runs_is_reported_and_to_note_where_trials_share_a_gpu(
    mps: bool, shared: bool, state: str, result: str
) -> None:
    facts = replace(SOUND, gpus=[Gpu("H200", 140 * GIB, 139 * GIB)], mps=mps)
    *_, last = checks.check_gpus(NODE, facts, "cuda", shared=shared)
    assert state_and_text(last) == (state, result)
    assert bool(last.remedy) == (state == "warning")


def test_a_study_for_gpus_needs_one() -> None:
    assert only(checks.check_any_gpu([(NODE, SOUND)], "cuda")).state == "wrong"
    assert not list(checks.check_any_gpu([(NODE, SOUND)], "cpu"))


@pytest.mark.parametrize(
    ("free", "state", "result"),
    [
        (50 * GIB, "good", "free for temporary files 50 GiB"),
        (3 * GIB, "warning", "3.0 GiB free for temporary files"),
        (GIB // 2, "wrong", "0.5 GiB free for temporary files"),
    ],
)
def test_disks_have_room(free: int, state: str, result: str) -> None:
    facts = replace(SOUND, free={"temporary files": free})
    assert state_and_text(only(checks.check_disk(NODE, facts))) == (state, result)


@pytest.mark.parametrize(
    ("behind", "state", "result"),
    [
        (0.0, "good", "within 2 s of the driver's"),
        (60.0, "warning", "60 s behind the driver's"),
        (None, "warning", "the node was too busy to be asked for its time"),
        (-600.0, "wrong", "600 s ahead of the driver's"),
    ],
)
def test_clocks_agree(behind: float | None, state: str, result: str) -> None:
    assert state_and_text(only(checks.check_clock(replace(NODE, behind=behind)))) == (state, result)


def test_a_node_that_leaves_while_it_is_asked_is_to_note_where_another_one_is_there(tmp_path: Path) -> None:
    gone, mute = Node("b", None, "left the cluster while it was asked", lost=True), Node("c", None, "is mute")
    asked = _Asked(None, str(tmp_path), WANTED)
    for nodes, states in (
        ([NODE, gone], ["warning"]),
        ([gone], ["wrong"]),
        ([NODE, gone, mute], ["warning", "wrong"]),
    ):
        result = [one for one in _of_nodes(asked, SOUND, nodes) if one.check == "node"]
        assert [one.state for one in result] == states
        assert result[0].finding == gone.problem and result[0].remedy


def test_what_several_nodes_have_in_common_is_one_line() -> None:
    results = [CheckResult("clock", "good", "right", nodes=[name]) for name in ("a", "b")]
    assert [one.nodes for one in merged([*results, CheckResult("disk", "good", "right", nodes=["a"])])] == [
        ["a", "b"],
        ["a"],
    ]


@pytest.fixture
def late_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster of a node that answers the questions, but not the one for its time."""
    raised = {"time": GetTimeoutError("Get timed out: some object(s) not ready.")}

    def get(answer: Any, timeout: float | None = None) -> Any:
        if answer in raised:
            raise raised[answer]
        return answer

    monkeypatch.setattr(asking.ray, "nodes", lambda: [{**NODE_OF_RAY, "Alive": True}])
    monkeypatch.setattr(asking.ray, "wait", lambda asked, **_: (asked, []))
    monkeypatch.setattr(asking.ray, "get", get)
    monkeypatch.setattr(asking, "_on", lambda _node, function, *_: "time" if function is now else "facts")


def test_a_node_that_is_late_only_with_its_time_keeps_its_other_answers(late_clock: None) -> None:
    (node,) = asking.ask_nodes(Question([]), 60.0)
    assert (node.facts, node.problem, node.behind) == ("facts", "", None)


# The store


def test_what_a_node_writes_is_seen_and_nothing_is_left(tmp_path: Path) -> None:
    store, result = check_store(tmp_path / "not" / "yet", "driver")
    assert store is not None and result.state == "good"
    with token(store) as name:
        facts = examine(Question(packages=[], store=store.existing.address, token=name))
        assert only(check_replies(store, [Node("n", facts)])).state == "good"
    assert not list(tmp_path.iterdir())


def test_a_node_with_a_folder_of_its_own_does_not_see_the_file(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    store, _ = check_store(tmp_path / "here", "driver")
    with token(store) as name:
        blind = examine(Question(packages=[], store=str(tmp_path / "there"), token=name))
        (tmp_path / "there" / name).write_text(name)  # the reverse: it sees the driver's and writes elsewhere
        deaf = examine(Question(packages=[], store=str(tmp_path / "there"), token=name))
        result = [
            state_and_text(one)
            for one in check_replies(store, [Node("blind", blind), Node("deaf", deaf), Node("silent", None)])
        ]
    here = f"{tmp_path / 'here'}: "
    assert result == [
        ("wrong", f"{here}the file that the driver wrote a moment ago is missing there"),
        ("wrong", f"{here}the driver does not see the file that was written there"),
    ]


def test_a_store_that_cannot_be_written_is_a_finding() -> None:
    store, result = check_store("/proc/runs", "driver")
    assert store is None and result.state == "wrong" and "cannot be written" in result.finding
    with token(store) as name:
        assert name == "" and check_replies(store, [NODE]) == []


def test_a_server_without_conditional_writes_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = Folder.put

    def forgets(folder: Folder, name: str, data: Any, **options: Any) -> Any:
        return put(folder, name, data)

    monkeypatch.setattr(Folder, "put", forgets)
    _, result = check_store(tmp_path, "driver")
    assert result.state == "wrong" and "lets two processes create the same file" in result.finding


def test_an_object_store_is_one_place(bucket: str) -> None:
    store, result = check_store(bucket, "driver")
    assert store is not None and result.state == "good"
    with token(store) as name:
        facts = examine(Question(packages=[], store=store.address, token=name))
        assert only(check_replies(store, [Node("n", facts)])).state == "good"
    assert Store.open(bucket)._list("")["objects"] == []


# GPUs, by stand-ins


def program(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(file.stat().st_mode | stat.S_IEXEC)


def test_no_gpu_is_looked_for_where_none_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpus_here(0) == []


def test_gpus_are_those_that_torch_can_use_with_the_drivers_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, "nvidia-smi", "echo '0, 570.86.10'")
    answer = json.dumps([{"name": "H200", "memory": 2, "free": 1, "environment": BITS}])
    program(tmp_path, "python", f"[ -z \"${{CUDA_VISIBLE_DEVICES+x}}\" ] && echo '{answer}'")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # as Ray leaves it to a process that asked for none
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert gpus_here(0) == [Gpu("H200", 2, 1, "570.86.10", BITS)]


def test_a_gpu_whose_memory_the_driver_does_not_know_is_looked_at_by_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU that shares the processor's memory: every field but its number, name and driver is ``[N/A]``."""
    known = "index) echo -n 0;; name) echo -n GB10;; driver_version) echo -n 580.95.05;; *) echo -n '[N/A]';;"
    each = f"echo -n \"$sep\"; sep=', '; case $field in {known} esac"
    rows = f"sep=; IFS=,; for field in ${{1#*=}}; do {each}; done; echo"
    program(tmp_path, "nvidia-smi", rows)
    answer = json.dumps([{"name": "GB10", "memory": 2, "free": 1, "environment": BITS}])
    program(tmp_path, "python", f"echo '{answer}'")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert gpus_here(0) == [Gpu("GB10", 2, 1, "580.95.05", BITS)]


def test_each_slice_of_mig_is_looked_at_by_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing = "GPU 0: H100 (UUID: GPU-1)\n  MIG 1g.10gb Device 0: (UUID: MIG-a)\n  MIG 1g.10gb Device 1: (UUID: MIG-b)"
    row = "0, 570.86.10"
    program(tmp_path, "nvidia-smi", f"if [ $1 = -L ]; then echo '{listing}'; else echo '{row}'; fi")
    answer = '[{"name": "\'$CUDA_VISIBLE_DEVICES\'", "memory": 2, "free": 1, "environment": {}}]'
    program(tmp_path, "python", f"echo '{answer}'")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert [gpu.name for gpu in gpus_here(2)] == ["MIG-a", "MIG-b"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-b")
    assert [gpu.name for gpu in gpus_here(1)] == ["MIG-b"]


@pytest.mark.parametrize(
    ("script", "runs"), [("read line; [ $line = get_server_list ]", True), ("echo no daemon; exit 1", False)]
)
def test_mps_runs_where_its_control_program_reaches_it(
    script: str, runs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert not mps_runs()
    program(tmp_path, "nvidia-cuda-mps-control", script)
    assert mps_runs() == runs


@pytest.mark.parametrize(
    ("smi", "torch", "why"),
    [
        (
            "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18",
            "",
            "nvidia-smi says: Failed",
        ),
        (
            "echo 'NVIDIA H200, 1, 0, 470.1, [N/A]'",
            "echo 'RuntimeError: driver too old' >&2; exit 1",
            "torch can use none: RuntimeError: driver too old",
        ),
    ],
)
def test_a_broken_driver_is_reported(
    smi: str, torch: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, "nvidia-smi", smi)
    program(tmp_path, "python", torch or ":")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    facts = examine(Question(packages=[]))
    assert facts.problems["gpus"].startswith(why)


# The whole, on this machine


def a_study(**data: Any) -> Study:
    rate = {"learning_rate": Float(0.01, 1)}
    losses = [Loss("cross_entropy", rate, {"learning_rate": 0.1})]
    arms = grid([Regime("r", **data)], [Model("linear")], losses, k=1, recipe=Recipe(1))
    return Study("s", arms, topk=(1,))


def states(actual: Diagnosis) -> dict[str, str]:
    return {result.check: result.state for result in actual.results}


def test_this_machine_is_sound_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # whatever its user's token is like
    result = diagnose(a_study(dataset="digits"), store=tmp_path / "runs", data=tmp_path)
    assert result.sound and result.nodes == ()
    checked = {
        "machine",
        "python",
        "versions",
        "code",
        "data",
        "gpus",
        "disk",
        "same bits",
        "store",
        "tracking",
        "study",
    }
    assert set(states(result)) == checked
    (disk,) = (one.finding for one in result.results if one.check == "disk")
    assert re.fullmatch(r"free for temporary files \d+ GiB, datasets \d+ GiB, the store \d+ GiB", disk)
    assert not list(tmp_path.iterdir())


def test_missing_data_and_a_server_that_is_down_are_findings(tmp_path: Path) -> None:
    study = a_study(dataset="image_folder", options={"folder": "birds", "size": 8})
    result = diagnose(study, store=tmp_path, data=tmp_path, mlflow_uri="http://me:s3cr3t@127.0.0.1:9")
    wrong = {one.check: one.finding for one in result.results if one.state == "wrong"}
    assert set(wrong) == {"data", "tracking"} and not result.sound
    assert "http://me:***@127.0.0.1:9" in wrong["tracking"] and "s3cr3t" not in wrong["tracking"]


def test_an_object_store_without_a_server_to_track_with_is_to_note(bucket: str) -> None:
    result = diagnose(store=bucket)
    assert result.sound and states(result)["tracking"] == "warning"


@pytest.mark.parametrize("arguments", [{"address": "nowhere"}, {"store": " "}, {"data": ""}])
def test_what_was_typed_wrong_is_no_finding(arguments: dict[str, str]) -> None:
    with pytest.raises(UserError, match=r"--address must be|store must|data must"):
        diagnose(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("store", "code", "last"), [("runs", 0, "Nothing is wrong."), ("/proc/x", 1, "1 thing is wrong.")]
)
def test_the_command_reports_it_and_has_an_exit_code(
    store: str,
    code: int,
    last: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # whatever its user's token is like
    monkeypatch.setattr(sys, "argv", ["topk", "doctor", "--store", store])
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code or 0) == code
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == last and sum(line.startswith("WRONG") for line in lines) == code
    assert lines[1].startswith("WRONG") == bool(code)  # first
    assert not os.listdir(tmp_path)


def test_a_file_of_the_doctors_has_a_name_that_no_listing_shows() -> None:
    assert shared_store._FILE.startswith(".")
