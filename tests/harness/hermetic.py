"""What a test changes in its process is as it was when the next one begins, whichever tests share the process.

The product and libraries change some things on purpose, and these are put back without a word: environment variables
(the feed of MLflow sets some), the folders in which Python looks for modules (``topk`` adds the current one) and, after
a file of tests, the modules that it wrote and imported, of which other files may have others by the same names. What
nobody means to leave behind fails the test that changed it, or its file where comparing takes longer, and is put back.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

# What the platform remembers of modules by their names, which is wrong once others have these names.
BY_NAME = (("topk_platform.versions", "_loaded"), ("topk_platform.data.dataset_table", "_load"))
OURS = ("topk_losses", "topk_platform")


class Setting(NamedTuple):
    """Something that a whole process has one of.

    Args:
        name: What a message calls it.
        get: Returns its value.
        put: Gives it a value.
    """

    name: str
    get: Callable[[], Any]
    put: Callable[[Any], object]


@cache
def of_tests() -> tuple[Setting, ...]:
    """Return what is compared around every test, some microseconds each."""
    import numpy as np  # here, for the process that hands tests out runs none and needs none of it
    import torch

    return (
        Setting("the current folder", os.getcwd, os.chdir),
        Setting("the root logger's level", lambda: logging.root.level, logging.root.setLevel),
        Setting("logging.disable", lambda: logging.root.manager.disable, logging.disable),
        Setting("NumPy's handling of errors", np.geterr, lambda value: np.seterr(**value)),
        Setting("torch's default dtype", torch.get_default_dtype, torch.set_default_dtype),
        Setting("torch's gradients", torch.is_grad_enabled, torch.set_grad_enabled),
        Setting(
            "torch's deterministic algorithms",
            torch.get_deterministic_debug_mode,
            torch.set_deterministic_debug_mode,
        ),
        Setting(
            "torch's precision of products",
            torch.get_float32_matmul_precision,
            torch.set_float32_matmul_precision,
        ),
    )


def of_files() -> tuple[Setting, ...]:
    """Return what is compared around every file of tests."""
    return (
        *of_tests(),
        *(handler(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)),
        *map(logger, OURS),
        Setting(
            "the folder of temporary files", tempfile.gettempdir, lambda v: setattr(tempfile, "tempdir", v)
        ),
        Setting("the time that sockets wait", socket.getdefaulttimeout, socket.setdefaulttimeout),
        Setting("Matplotlib's rcParams", rc_params, lambda _: sys.modules["matplotlib"].rc_file_defaults()),
        Setting("MLflow's tracking URI", tracking_uri, set_tracking_uri),
    )


def handler(number: signal.Signals) -> Setting:
    return Setting(
        f"what handles {number.name}",
        lambda: handled(number),
        lambda v: v is not None and signal.signal(number, v),  # None: a handler that Python cannot set
    )


def handled(number: signal.Signals) -> Any:
    """Return what handles a signal; Ray leaves a handler of its own, which does what the default does."""
    now = signal.getsignal(number)
    return signal.SIG_DFL if getattr(now, "__module__", "").startswith("ray.") else now


def logger(name: str) -> Setting:
    named = logging.getLogger(name)

    def put(value: tuple[int, list[logging.Handler], bool, bool]) -> None:
        named.level, named.handlers, named.disabled, named.propagate = value

    return Setting(
        f"the logger {name}", lambda: (named.level, [*named.handlers], named.disabled, named.propagate), put
    )


def rc_params() -> dict[str, tuple[Any, Any]]:
    """Return the parameters that differ from the defaults; the backend is chosen when something is drawn first."""
    if (matplotlib := sys.modules.get("matplotlib")) is None:
        return {}
    usual, now = matplotlib.rcParamsOrig, matplotlib.rcParams
    return {name: now[name] for name in now if not name.startswith("backend") and now[name] != usual[name]}


def tracking_uri() -> str:
    mlflow = sys.modules.get("mlflow")
    return mlflow.get_tracking_uri() if mlflow is not None and mlflow.is_tracking_uri_set() else ""


def set_tracking_uri(value: str) -> None:
    sys.modules["mlflow"].set_tracking_uri(value)


def compared(settings: tuple[Setting, ...]) -> Iterator[None]:
    """Put back what changed meanwhile, and fail with its names."""
    before = [setting.get() for setting in settings]
    variables, folders = variables_now(), [*sys.path]
    yield
    put_back(variables)
    sys.path[:] = folders
    changed = []
    for setting, value in zip(settings, before, strict=True):
        if (now := setting.get()) != value:
            setting.put(value)
            changed.append(f"{setting.name}: {value} before, {now} after")
    assert not changed, f"left behind, which the next test would find: {'; '.join(changed)}"


def variables_now() -> dict[bytes, bytes]:
    """Return the environment as it is kept, for decoding takes longer than many tests; pytest sets a variable too."""
    result: dict[bytes, bytes] = os.environ._data.copy()  # type: ignore[attr-defined]
    result.pop(b"PYTEST_CURRENT_TEST", None)
    return result


def put_back(variables: dict[bytes, bytes]) -> None:
    now = variables_now()
    if now == variables:
        return
    for name in now.keys() - variables:
        del os.environb[name]
    os.environb.update(variables)


def forget(names: list[str]) -> None:
    """Let modules be imported anew, as a process does that starts now."""
    for name in names:
        del sys.modules[name]
    for module, remembered in BY_NAME if names else ():
        if module in sys.modules:
            getattr(sys.modules[module], remembered).cache_clear()


def is_below(name: str, folder: Path) -> bool:
    module = sys.modules[name]
    file = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), "")
    return file.startswith(f"{folder}/")


def around_a_test() -> Iterator[None]:
    """Leave the process as it was before a test, its fixture's ``yield from``; a fixture of its own takes longer."""
    yield from compared(of_tests())


@pytest.fixture(autouse=True, scope="module")
def file_as_before(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A file of tests, with its fixtures, or of examples in docstrings leaves the process as it was."""
    before = set(sys.modules)
    yield from compared(of_files())
    imported = [name for name in sys.modules if name not in before]
    forget([name for name in imported if is_below(name, tmp_path_factory.getbasetemp())])
