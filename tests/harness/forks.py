"""Commands of ``topk`` run by the hundred: a server that has imported everything forks one process for each.

A process of its own, because what a hostile file does to it must not reach the tests: memory, time, modules.
"""

from __future__ import annotations

import io
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path

SECONDS = 120  # after which a command is said to hang; the machine may be busy
ADDRESSES = 64 * 2**30  # a limit of the system's, far above what any case may take


@dataclass(frozen=True)
class Ended:
    """How a command ended: exit code, or None if it hung; what it printed; the most memory that it took in MiB."""

    code: int | None
    out: str
    err: str
    mebibytes: float
    seconds: float


class Commands:
    """Runs commands of ``topk``, each in a fork of a process that has imported all that they use."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self._server = subprocess.Popen(
            [sys.executable, __file__],
            cwd=folder,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.base = self.run("--version").mebibytes

    def run(self, *arguments: str, **environment: str) -> Ended:
        """Run one command, with more variables in its environment."""
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.write(json.dumps([arguments, environment]) + "\n")
        self._server.stdin.flush()
        return Ended(**json.loads(self._server.stdout.readline()))

    def close(self) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait()


@contextmanager
def commands(folder: Path, **environment: str) -> Iterator[Commands]:
    """Run commands in a folder, with these variables in the environment."""
    result = Commands(folder, **environment)
    try:
        yield result
    finally:
        result.close()


def _serve() -> None:
    _import()
    for line in sys.stdin:
        sys.stdout.write(json.dumps(asdict(_run(*json.loads(line)))) + "\n")
        sys.stdout.flush()


def _import() -> None:
    import matplotlib  # noqa: F401
    import numpy  # noqa: F401
    import safetensors.torch  # noqa: F401
    import torch
    from PIL import Image  # noqa: F401

    import topk_platform.cli
    import topk_platform.reports.result_tables
    import topk_platform.results.findings
    import topk_platform.serving.classifier
    import topk_platform.training.run  # noqa: F401
    import topk_studies  # noqa: F401
    from topk_losses.operators import inclusion_probabilities

    torch.set_num_threads(1)  # a fork has no other threads
    inclusion_probabilities(torch.zeros(1, 4), 2)  # which compiles it


def _run(arguments: Sequence[str], environment: dict[str, str]) -> Ended:
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        began, child = time.monotonic(), os.fork()
        if child == 0:
            os.environ.update(environment)
            _be_topk(arguments, out.fileno(), err.fileno())
        code, usage = _wait(child)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read())
    return Ended(code, *texts, usage.ru_maxrss / 1024, time.monotonic() - began)


def _wait(child: int) -> tuple[int | None, resource.struct_rusage]:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        ended, status, usage = os.wait4(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status), usage
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    _, _, usage = os.wait4(child, 0)
    return None, usage


def _be_topk(arguments: Sequence[str], out: int, err: int) -> None:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(err, 2)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    code: object = 70
    try:
        with redirect_stdout(_text(1)), redirect_stderr(_text(2)):
            from topk_platform.cli import main

            sys.argv = ["topk", *arguments]
            try:
                main()
                code = 0
            except SystemExit as ended:
                code = ended.code or 0
            sys.stdout.flush()
            sys.stderr.flush()
    finally:
        os._exit(code if isinstance(code, int) else 70)


def _text(number: int) -> io.TextIOWrapper:
    return io.TextIOWrapper(os.fdopen(os.dup(number), "wb", 0), encoding="utf-8", write_through=True)


if __name__ == "__main__":
    _serve()
