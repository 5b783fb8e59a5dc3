"""A user's own study as a job of Ray's, with the command that ``docs/cluster.md`` gives."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
from pathlib import Path
from typing import Any

from clusters import Site
from hosts import network, on_hosts
from labs import rows

HAS_JOBS = importlib.util.find_spec("aiohttp_cors") is not None
pytestmark = on_hosts("" if HAS_JOBS else "ray[default], which has jobs, is not installed")

PAGE = Path(__file__).parents[2] / "docs" / "cluster.md"


def documented(study: str, store: Path) -> list[str]:
    """Return the page's command, with another study and store."""
    (command,) = re.findall(
        r"^    (ray job submit .*(?:\n        .*)*)", PAGE.read_text(), flags=re.MULTILINE
    )
    replaced = {"my_lab:study": study, "s3://YOUR-BUCKET/runs": str(store), "\\\n": " "}
    for old, new in replaced.items():
        assert old in command
        command = command.replace(old, new)
    return shlex.split(command)


def test_a_job_of_rays_runs_a_study_of_ones_own(lab: Any, tmp_path: Path) -> None:
    """From the user's folder, which is all that goes there: the job finds it shipped, and so do the workers."""
    store, hosts = tmp_path / "store", tmp_path / "hosts"
    for folder in (store, hosts):
        folder.mkdir()
    with network(hosts, lab.folder, store) as net:
        site = Site(net, tmp_path, lab.folder, lab.environment)
        head = site.host("head")
        site.head(head, "127.0.0.1", "--num-cpus", "1")
        listening = head.run(["ss", "-ltnH"])
        process, log = site.start(head, *documented("lab:plain", store))
        assert process.wait() == 0, log.read_text()
    assert {line.split()[3].rpartition(":")[0] for line in listening.splitlines()} <= {
        "127.0.0.1",
        "[::ffff:127.0.0.1]",
    }
    assert [row["status"] for row in rows(store)] == ["completed"] * 2
    shipped = re.compile(r"/(py_modules_files|working_dir_files)/")
    for worker in map(json.loads, lab.noted("workers.jsonl")):
        assert all(shipped.search(file) for file in worker["files"])
