"""The files of deploy/, as far as they can be run without a registry or a Docker daemon."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


Done = subprocess.CompletedProcess[str]


def program(folder: Path, name: str, text: str) -> Path:
    """Write a program to a folder; return it."""
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)
    return folder / name


def test_the_image_has_all_that_the_wheel_is_built_of() -> None:
    lines = re.findall(r"^COPY (?!--from)(.*)", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE)
    copied = {name for line in lines for name in line.split()[:-1]}
    build = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    needed = {"pyproject.toml", PROJECT["project"]["readme"], *PROJECT["project"]["license-files"]}
    assert needed | {name.partition("/")[0] for name in build} <= copied
    assert all((ROOT / name).exists() for name in copied)
    allowed = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert allowed[0] == "*" and {f"!{name}" for name in copied} <= {*allowed}


@pytest.mark.parametrize("script", sorted(DEPLOY.glob("*.sh")), ids=lambda script: script.name)
def test_a_shell_can_read_it(script: Path) -> None:
    shell = script.read_text().partition("\n")[0].rpartition("/")[2].split()[-1]
    assert subprocess.run([shell, "-n", script]).returncode == 0


# slurm.sh, with stand-ins; the real thing: end_to_end/test_slurm.py

TOPK = """#!/bin/bash
echo "$*" >> "$NOTES/called"
trap 'exit 143' TERM
touch "$NOTES/running"
for _ in $(seq 400); do [ -e "$NOTES/done" ] && exit "$(cat "$NOTES/done")"; sleep 0.05; done
"""
WAIT_FOR_FOLDER = """#!/bin/bash
until [ -e "$NOTES/folder" ]; do sleep 0.05; done
"""
SCONTROL = """#!/bin/bash
[ "$1" = show ] && echo "JobId=7 JobState=$(cat "$NOTES/state") Reason=None" && exit
echo "$*" >> "$NOTES/requeued"
"""


def slurm_environment(folder: Path, **more: object) -> dict[str, str]:
    """The environment of a job whose programs lie in a folder, where they note what they are asked."""
    for name, text in (("topk", TOPK), ("scontrol", SCONTROL), ("state", "RUNNING")):
        program(folder, name, text)
    names = {"TOPK_BIN": folder, "NOTES": folder, "SLURM_JOB_ID": 7, **more}
    return {**os.environ, **{name: str(value) for name, value in names.items()}}


@pytest.fixture
def script(heard: None, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    environment = slurm_environment(tmp_path, SLURM_JOB_NUM_NODES=1, SLURM_JOB_NODELIST="n1")
    command = ["bash", str(DEPLOY / "slurm.sh"), "digits", "--store", "/s"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        until = time.monotonic() + 60
        while not (tmp_path / "running").exists() and time.monotonic() < until:
            time.sleep(0.01)
        yield process
        process.kill()


@pytest.mark.parametrize("cancelled", [False, True])
def test_on_one_node_a_job_needs_no_cluster_and_goes_on_after_sigterm_unless_somebody_has_cancelled_it(
    script: subprocess.Popen[str], tmp_path: Path, cancelled: bool
) -> None:
    if cancelled:
        (tmp_path / "state").write_text("COMPLETING")
    script.send_signal(signal.SIGTERM)
    output, _ = script.communicate(timeout=60)
    assert (tmp_path / "called").read_text() == "run digits --store /s\n" and "the code is 143" in output
    if cancelled:
        assert script.returncode == 143 and not (tmp_path / "requeued").exists()
    else:
        assert (tmp_path / "requeued").read_text() == "requeue 7\n"


@pytest.mark.parametrize("code", [0, 3])
def test_a_study_that_has_ended_is_not_queued_again(
    script: subprocess.Popen[str], tmp_path: Path, code: int
) -> None:
    (tmp_path / "done.new").write_text(str(code))
    (tmp_path / "done.new").rename(tmp_path / "done")
    output, _ = script.communicate(timeout=60)
    assert script.returncode == code and output.endswith(f"the code is {code}\n")
    assert not (tmp_path / "requeued").exists()


SRUN = """#!/bin/bash
while [ "$1" != bash ]; do shift; done
SLURM_PROCID=0 exec "$@"
"""
RAYS = """#!/bin/bash
while [ $# -gt 0 ]; do [ "$1" = --temp-dir ] && folder=$2; shift; done
mkdir -p "$folder" && echo "$folder $(stat -c %a "$(dirname "$folder")")" > "$NOTES/folder.new"
mv "$NOTES/folder.new" "$NOTES/folder"
echo "secrets of a log"
sleep 600 & child=$!
trap 'kill $child; exit 0' TERM
wait
"""


@pytest.mark.parametrize("long", [False, True])
def test_a_job_of_several_nodes_has_its_files_to_itself(tmp_path: Path, long: bool) -> None:
    """In a folder whose name nobody knows beforehand, which goes with the job; and Ray is told to end."""
    with tempfile.TemporaryDirectory(prefix="j", dir="/tmp") as short:
        temporary = Path(short) / ("long" * 10 if long else "t")
        temporary.mkdir()
        for name, text in (("srun", SRUN), ("ray", RAYS), ("python", WAIT_FOR_FOLDER), ("done", "0")):
            program(tmp_path, name, text)
        nodes = {"SLURM_JOB_NUM_NODES": 2, "SLURM_JOB_NODELIST": "n[1-2]"}
        environment = slurm_environment(tmp_path, **nodes, TMPDIR=temporary, HEAD_ADDRESS="127.0.0.1")
        command = ["bash", str(DEPLOY / "slurm.sh"), "digits"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        folder, mode = (tmp_path / "folder").read_text().split()
        root = Path(folder).parent
        socket_name = "/session_2026-11-24_05-54-03_574123_1234567/sockets/plasma_store"
        assert mode == "700" and len(folder + socket_name) <= 107
        assert root.parent == (Path("/tmp") if long else temporary)
        assert re.fullmatch(r"topk-[0-9a-f]{10}", root.name) and not root.exists()
        assert not list(temporary.iterdir())


# start-head.sh and start-worker.sh, with a stand-in for Ray; the real thing: end_to_end/test_several_hosts.py

RAY = """#!/bin/sh
[ "$*" = "get-auth-token --help" ] && exit
[ "$1" = get-auth-token ] && mkdir -p "$HOME/.ray" && echo token > "$HOME/.ray/auth_token" && exit
echo "ray $*"
kill -TERM "$PPID"
"""


@pytest.fixture
def by_hand(tmp_path: Path) -> Callable[..., Done]:
    """A machine whose Ray does nothing but end start-worker.sh, which would start it anew."""
    program(tmp_path, "ray", RAY)
    (tmp_path / "python").symlink_to(sys.executable)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    names = {"HOME": str(tmp_path), "RAY": f"{tmp_path}/ray", "RAY_PORT": port, "NODE_ADDRESS": "127.0.0.1"}
    left_out = {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"}
    environment = {name: value for name, value in os.environ.items() if name not in left_out} | names

    def run(script: str, *arguments: str, **more: str) -> Done:
        shown = {**environment, **more}
        if script == "start-head.sh":
            (tmp_path / "ray").write_text(RAY.replace("kill", ": kill"))
        command = ["sh", str(DEPLOY / script), *arguments]
        return subprocess.run(command, env=shown, capture_output=True, text=True, timeout=120)

    return run


def test_a_head_says_what_to_type_next_and_keeps_its_token(
    by_hand: Callable[..., Done], tmp_path: Path
) -> None:
    done = by_hand("start-head.sh", "127.0.0.1", "--num-cpus", "1")
    assert done.returncode == 0, done.stderr
    started = re.match(
        r"ray start --head --node-ip-address 127.0.0.1 .*--port (\d+) .* --num-cpus 1\n", done.stdout
    )
    assert started and f"topk plan STUDY --address 127.0.0.1:{started[1]}" in done.stdout
    assert "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0" in done.stdout and "start-worker.sh" not in done.stdout
    token = tmp_path / ".ray" / "auth_token"
    assert token.stat().st_mode & 0o777 == 0o600
    token.chmod(0o644)
    done = by_hand("start-head.sh", "10.0.0.1", RAY_AUTH_TOKEN_PATH=str(token))
    assert f"deploy/start-worker.sh 10.0.0.1:{started[1]}" in done.stdout
    assert token.stat().st_mode & 0o777 == 0o600


def test_a_head_in_the_foreground_is_ray_itself(by_hand: Callable[..., Done]) -> None:
    """What the script would say afterwards would come when it is over; and a signal is for Ray."""
    assert by_hand("start-head.sh", "127.0.0.1", "--block").stdout.count("\n") == 1


def test_a_head_is_refused_without_an_address_before_options_and_on_a_port_that_is_taken(
    by_hand: Callable[..., Done],
) -> None:
    done = by_hand("start-head.sh", "--num-cpus", "1")
    assert (done.returncode, done.stdout) == (2, "") and "usage: deploy/start-head.sh" in done.stderr
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = by_hand("start-head.sh", "127.0.0.1", RAY_PORT=str(port))
    assert (done.returncode, done.stdout) == (2, "") and f"127.0.0.1:{port}" in done.stderr


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o644, True)])
def test_a_worker_warns_of_a_token_that_others_can_read(
    mode: int, warned: bool, by_hand: Callable[..., Done], tmp_path: Path
) -> None:
    (tmp_path / ".ray").mkdir()
    program(tmp_path / ".ray", "auth_token", "token").chmod(mode)
    done = by_hand("start-worker.sh", "127.0.0.1:1")
    assert "ray start --address 127.0.0.1:1 " in done.stdout
    assert (f"chmod 600 {tmp_path}/.ray/auth_token" in done.stderr) == warned


def test_a_worker_wants_a_token_unless_its_ray_knows_none(
    by_hand: Callable[..., Done], tmp_path: Path
) -> None:
    done = by_hand("start-worker.sh", "127.0.0.1:1")
    assert (done.returncode, done.stdout) == (2, "") and "auth_token: copy the head's" in done.stderr
    old = RAY.replace('[ "$1" = get-auth-token ] &&', '[ "$1" = get-auth-token ] && exit 2 #')
    (tmp_path / "ray").write_text(old.replace('[ "$*" = "get-auth-token --help" ] && exit', ""))
    done = by_hand("start-worker.sh", "127.0.0.1:1")
    assert "ray start --address 127.0.0.1:1 " in done.stdout
    assert "this Ray knows no tokens" in done.stderr


@pytest.mark.parametrize("arguments", [(), ("head",), ("::1", "10.0.0.0/24")])
def test_ports_stay_closed_where_the_script_refuses_its_arguments(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    program(tmp_path, "nft", f"#!/bin/sh\ntouch {tmp_path}/asked\n")
    command = ["sh", DEPLOY / "close-ports.sh", *arguments]
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, input="")
    assert done.returncode == 2 and "must be an IPv4 address" in done.stderr
    assert not (tmp_path / "asked").exists()


def test_every_file_is_reported_in_the_docs() -> None:
    pages = "".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    ours = [file.name for file in DEPLOY.iterdir() if not fnmatch(file.name, "*.dockerignore")]
    assert not [name for name in ours if f"deploy/{name}" not in pages]
