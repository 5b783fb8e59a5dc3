"""deploy/slurm.sh in a real Slurm of two nodes on this machine: cut off by the time limit, it goes on later."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from labs import check_undisturbed, rows, until

SCRIPT = Path(__file__).parents[2] / "deploy" / "slurm.sh"
PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "scontrol")
PATH = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])
DEAD = ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "BOOT_FAIL")

CONF = """
ClusterName=topk
SlurmctldHost={host}({loopback})
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={ports[0]}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_min_interval=100000,sched_interval=5
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmdLogFile={folder}/slurmd.%n.log
SlurmdSpoolDir={folder}/spool.%n
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
KillWait=30
MinJobAge=3600
NodeName=n1 NodeHostname={host} NodeAddr={loopback} Port={ports[1]} CPUs=1 State=UNKNOWN
NodeName=n2 NodeHostname={host} NodeAddr={loopback} Port={ports[2]} CPUs=1 State=UNKNOWN
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.hosts,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(
        any(shutil.which(name, path=PATH) is None for name in PROGRAMS),
        reason="needs Debian's slurmctld, slurmd, slurm-client and munge",
    ),
]


@dataclass
class Slurm:
    """A Slurm of its own: its programs, its folder, and the environment that leads to it."""

    folder: Path
    environment: dict[str, str]

    def run(self, *command: str) -> str:
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def limit(self, job: str) -> None:
        """Let a job's time be up in a moment, as its script is told three minutes before."""
        clock = self.state(job)["RunTime"].partition("-")[2] or self.state(job)["RunTime"]
        hours, minutes, _ = map(int, clock.split(":"))
        self.run("scontrol", "update", f"JobId={job}", f"TimeLimit={60 * hours + minutes + 4}")

    def state(self, job: str) -> dict[str, str]:
        shown = self.run("scontrol", "show", "job", job, "--oneliner")
        return dict(part.partition("=")[::2] for part in shown.split())


def free_ports(count: int) -> list[int]:
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in taken]
    for server in taken:
        server.close()
    return ports


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    """Munge, the controller and two nodes, by nobody but this user and on loopback."""
    with tempfile.TemporaryDirectory(prefix="slurm", dir="/tmp", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "state").mkdir()
        key, user = folder / "munge.key", subprocess.check_output(["id", "-un"], text=True).strip()
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        names = {"host": socket.gethostname().partition(".")[0], "loopback": "127.0.0.1", "user": user}
        (folder / "slurm.conf").write_text(CONF.format(**names, ports=free_ports(3), folder=folder))
        environment = {**os.environ, "PATH": PATH, "SLURM_CONF": str(folder / "slurm.conf")}
        munge = ["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={folder}/munge.socket"]
        munge += [f"--{kind}-file={folder}/munge.{kind}" for kind in ("pid", "log", "seed")]
        commands = [munge, ["slurmctld", "-D"], ["slurmd", "-D", "-N", "n1"], ["slurmd", "-D", "-N", "n2"]]
        processes = []
        try:
            for command in commands:
                with (folder / f"{command[0]}.out").open("a") as out:
                    processes.append(subprocess.Popen(command, env=environment, stdout=out, stderr=out))
                time.sleep(1)
            yield Slurm(folder, environment)
        finally:
            for process in reversed(processes):
                stop(process)


def submit(slurm: Slurm, lab: Any, store: Path, log: Path) -> str:
    environment = {**slurm.environment, **lab.environment, "TOPK_BIN": str(Path(sys.executable).parent)}
    environment |= {"PYTHONPATH": str(lab.folder), "OMP_NUM_THREADS": "1"}
    del environment["RAY_AUTH_MODE"]  # the script's own affair
    options = ["--parsable", "--nodes=2", "--cpus-per-task=1", "--time=60", f"--output={log}"]
    command = ["sbatch", *options, str(SCRIPT), "my_lab:study", "--store", str(store), "--checkpoints", "0"]
    done = subprocess.run(command, env=environment, cwd=lab.folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def address_of(lab: Any) -> str:
    """Where the job's Ray is, as the commands of its nodes say."""
    (result,) = {
        word for line in lab.running().values() for word in re.findall(r"--address[= ](\d[\d.]+:\d+)", line)
    }
    return result


def refused(address: str) -> bool:
    """Whether somebody without the token gets nowhere."""
    code = f"import ray; ray.init(address={address!r}, logging_level=50, log_to_driver=False)"
    environment = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    return done.returncode != 0 and "token" in done.stderr.lower()


def test_the_time_limit_changes_nothing(slurm: Slurm, lab: Any, reference: Any, tmp_path: Path) -> None:
    store, log = tmp_path / "runs", tmp_path / "job.log"
    lab.allow(1)
    job = submit(slurm, lab, store, log)
    try:
        until(lambda: len(lab.noted("held")) >= 2, "two trainings are held")
        assert refused(address_of(lab))
        slurm.limit(job)
        until(lambda: int(slurm.state(job)["Restarts"]) >= 1, "the job is queued again")
        slurm.run("scontrol", "update", f"JobId={job}", "TimeLimit=60")
        assert len(rows(store, "small")) == 1  # what was let on has ended, the rest waits in its checkpoints
        lab.allow(10**6)
        until(lambda: slurm.state(job)["JobState"] in DEAD, "the job has ended")
    finally:
        subprocess.run(["scancel", job], env=slurm.environment)
        until(lambda: slurm.state(job)["JobState"] in DEAD, "the job is gone")
    output = log.read_text()
    assert slurm.state(job)["JobState"] == "COMPLETED", output
    assert slurm.state(job)["ExitCode"] == "0:0"
    assert "SIGTERM: " in output and "the code is 143; " in output
    check_undisturbed(store, reference)
    # The step under way of each training that was cut off is repeated.
    assert len(lab.noted("steps")) <= reference.steps + 2
    until(lambda: not lab.running(), "nothing of it runs any more")
