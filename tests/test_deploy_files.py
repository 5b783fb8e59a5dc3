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


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's, each in a line."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = filter(None, re.sub(r"\\\n\s*", "", text).splitlines())
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


def those(word: str) -> list[str]:
    return [rest for result, rest in instructions() if result == word]


def copied() -> list[str]:
    sources = [rest.split()[:-1] for rest in those("COPY") if not rest.startswith("--from")]
    return [name for names in sources for name in names]


def test_the_image_has_all_that_the_wheel_is_built_of() -> None:
    build = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    needed = {"pyproject.toml", PROJECT["project"]["readme"], *PROJECT["project"]["license-files"]}
    assert needed | {name.partition("/")[0] for name in build} <= {*copied()}
    assert all((ROOT / name).exists() for name in copied())
    allowed = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert allowed[0] == "*" and {f"!{name}" for name in copied()} <= {*allowed}


@pytest.mark.parametrize("script", sorted(DEPLOY.glob("*.sh")), ids=lambda script: script.name)
def test_a_shell_can_read_it(script: Path) -> None:
    shell = script.read_text().partition("\n")[0].rpartition("/")[2].split()[-1]
    assert subprocess.run([shell, "-n", script]).returncode == 0


@pytest.mark.parametrize("line", those("RUN"))
def test_a_shell_can_read_what_the_image_runs(line: str) -> None:
    assert subprocess.run(["sh", "-n", "-c", line]).returncode == 0


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


@pytest.fixture
def script(heard: None, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    for name, text in (("topk", TOPK), ("scontrol", SCONTROL)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "state").write_text("RUNNING")
    names = {"TOPK_BIN": tmp_path, "NOTES": tmp_path, "SLURM_JOB_ID": 7, "SLURM_JOB_NUM_NODES": 1}
    environment = {
        **os.environ,
        **{name: str(value) for name, value in names.items()},
        "SLURM_JOB_NODELIST": "n1",
    }
    command = ["bash", str(DEPLOY / "slurm.sh"), "digits", "--store", "/s"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        until = time.monotonic() + 60
        while not (tmp_path / "running").exists() and time.monotonic() < until:
            time.sleep(0.01)
        yield process
        process.kill()


def test_on_one_node_a_job_needs_no_cluster_and_goes_on_after_sigterm(
    script: subprocess.Popen[str], tmp_path: Path
) -> None:
    script.send_signal(signal.SIGTERM)
    output, _ = script.communicate(timeout=60)
    assert (tmp_path / "called").read_text() == "run digits --store /s\n"
    assert (tmp_path / "requeued").read_text() == "requeue 7\n"
    assert "the code is 143; the job is put into the queue again" in output


def test_a_job_that_somebody_has_cancelled_is_not_queued_again(
    script: subprocess.Popen[str], tmp_path: Path
) -> None:
    (tmp_path / "state").write_text("COMPLETING")
    script.send_signal(signal.SIGTERM)
    script.communicate(timeout=60)
    assert script.returncode == 143 and not (tmp_path / "requeued").exists()


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
        programs = {"topk": TOPK, "scontrol": SCONTROL, "srun": SRUN, "ray": RAYS, "python": WAIT_FOR_FOLDER}
        for name, text in programs.items():
            (tmp_path / name).write_text(text)
            (tmp_path / name).chmod(0o755)
        (tmp_path / "state").write_text("RUNNING")
        (tmp_path / "done").write_text("0")
        names = {"TOPK_BIN": tmp_path, "NOTES": tmp_path, "SLURM_JOB_ID": 7, "SLURM_JOB_NUM_NODES": 2}
        names |= {"SLURM_JOB_NODELIST": "n[1-2]", "TMPDIR": temporary, "HEAD_ADDRESS": "127.0.0.1"}
        environment = {**os.environ, **{name: str(value) for name, value in names.items()}}
        command = ["bash", str(DEPLOY / "slurm.sh"), "digits"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        folder, mode = (tmp_path / "folder").read_text().split()
        root = Path(folder).parent
        assert mode == "700" and len(folder) <= 107 - len(
            "/session_2026-11-24_05-54-03_574123_1234567/sockets/plasma_store"
        )
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
def by_hand(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """A machine whose Ray does nothing but end start-worker.sh, which would start it anew."""
    (tmp_path / "ray").write_text(RAY)
    (tmp_path / "ray").chmod(0o755)
    (tmp_path / "python").symlink_to(sys.executable)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    names = {
        "HOME": str(tmp_path),
        "RAY": str(tmp_path / "ray"),
        "RAY_PORT": port,
        "NODE_ADDRESS": "127.0.0.1",
    }
    left_out = {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"}
    environment = {name: value for name, value in os.environ.items() if name not in left_out} | names

    def run(script: str, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        shown = {**environment, **more}
        if script == "start-head.sh":
            (tmp_path / "ray").write_text(RAY.replace("kill", ": kill"))
        command = ["sh", str(DEPLOY / script), *arguments]
        return subprocess.run(command, env=shown, capture_output=True, text=True, timeout=120)

    return run


def test_a_head_says_what_to_type_next_and_keeps_its_token(
    by_hand: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    done = by_hand("start-head.sh", "127.0.0.1", "--num-cpus", "1")
    assert done.returncode == 0, done.stderr
    started, _, output = done.stdout.partition("\n")
    assert started.startswith("ray start --head --node-ip-address 127.0.0.1 ") and started.endswith(
        " --num-cpus 1"
    )
    port = re.search(r" --port (\d+) ", started)[1]  # type: ignore[index]
    for line in (
        "export RAY_AUTH_MODE=token",
        f"topk plan STUDY --address 127.0.0.1:{port}",
        "topk run STUDY --address",
    ):
        assert f"    {line}" in output
    assert "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0" in output and "start-worker.sh" not in output
    assert (tmp_path / ".ray" / "auth_token").stat().st_mode & 0o777 == 0o600
    (tmp_path / ".ray" / "auth_token").chmod(0o644)
    done = by_hand("start-head.sh", "10.0.0.1", RAY_AUTH_TOKEN_PATH=str(tmp_path / ".ray" / "auth_token"))
    assert f"    deploy/start-worker.sh 10.0.0.1:{port}" in done.stdout
    assert (tmp_path / ".ray" / "auth_token").stat().st_mode & 0o777 == 0o600


def test_a_head_in_the_foreground_is_ray_itself(
    by_hand: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    """What the script would say afterwards would come when it is over; and a signal is for Ray."""
    assert by_hand("start-head.sh", "127.0.0.1", "--block").stdout.count("\n") == 1


def test_a_head_is_refused_without_an_address_before_options_and_on_a_port_that_is_taken(
    by_hand: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = by_hand("start-head.sh", "--num-cpus", "1")
    assert (done.returncode, done.stdout) == (
        2,
        "",
    ) and "\nusage: deploy/start-head.sh [ADDRESS" in done.stderr
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = by_hand("start-head.sh", "127.0.0.1", RAY_PORT=str(port))
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        f"something listens at 127.0.0.1:{port}, " in done.stderr and f"RAY_PORT={port + 1} " in done.stderr
    )


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o644, True)])
def test_a_worker_warns_of_a_token_that_others_can_read(
    mode: int, warned: bool, by_hand: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("token")
    (tmp_path / ".ray" / "auth_token").chmod(mode)
    done = by_hand("start-worker.sh", "127.0.0.1:1")
    assert "ray start --address 127.0.0.1:1 " in done.stdout
    assert (f"chmod 600 {tmp_path}/.ray/auth_token" in done.stderr) == warned


def test_a_worker_wants_a_token_unless_its_ray_knows_none(
    by_hand: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    done = by_hand("start-worker.sh", "127.0.0.1:1")
    assert (done.returncode, done.stdout) == (2, "") and "auth_token: copy the head's" in done.stderr
    old = RAY.replace('[ "$1" = get-auth-token ] &&', '[ "$1" = get-auth-token ] && exit 2 #')
    (tmp_path / "ray").write_text(old.replace('[ "$*" = "get-auth-token --help" ] && exit', ""))
    done = by_hand("start-worker.sh", "127.0.0.1:1")
    assert "ray start --address 127.0.0.1:1 " in done.stdout
    assert done.stderr.splitlines()[0] == (
        "start-worker.sh: this Ray knows no tokens; whoever reaches its ports runs code here"
    )


@pytest.fixture
def close_ports(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """A function that runs close-ports.sh with an nft that notes what it is asked, and ends with the code REFUSES."""
    nft = tmp_path / "nft"
    nft.write_text(f'#!/bin/sh\n{{ echo "nft $*"; cat; }} >>{tmp_path}/asked\nexit "${{REFUSES:-0}}"\n')
    nft.chmod(0o755)

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", **variables}
        command = ["sh", DEPLOY / "close-ports.sh", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, input="")

    return run


@pytest.mark.parametrize("arguments", [(), ("head",), ("::1", "10.0.0.0/24")])
def test_ports_stay_closed_where_the_script_refuses_its_arguments(
    close_ports: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    done = close_ports(*arguments)
    assert done.returncode == 2 and "must be an IPv4 address" in done.stderr
    assert not (tmp_path / "asked").exists()


def test_every_file_is_reported_in_the_docs() -> None:
    pages = "".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    ours = [file.name for file in DEPLOY.iterdir() if not fnmatch(file.name, "*.dockerignore")]
    assert not [name for name in ours if f"deploy/{name}" not in pages]
