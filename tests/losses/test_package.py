"""What somebody meets who installs the losses alone."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import topk_losses
from topk_losses import functional, operators, testing

SOURCES = Path(topk_losses.__file__).parent


def test_import_loads_torch_alone():
    """Torch itself loads numpy where that is installed; nothing of ours may add to what torch loads."""
    code = (
        "import sys, torch; before = set(sys.modules); import topk_losses; "
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    added = {name for name in run.stdout.split() if name not in sys.stdlib_module_names}
    assert added <= {"topk_losses", "torch"}


def test_sources_import_the_standard_library_and_torch():
    for path in SOURCES.rglob("*.py"):
        allowed = {"torch", "topk_losses", *sys.stdlib_module_names}
        allowed |= {"pytest"} if path.parent.name == "testing" else set()
        allowed |= {"triton"} if path.name == "cuda_kernels.py" else set()  # for CUDA tensors alone
        allowed |= {"numba"} if path.parent.name == "_core" and path.stem.startswith("numba") else set()
        allowed |= {"numpy"} if path.stem.endswith("kernels") else set()  # it comes with Numba
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert {name.partition(".")[0] for name in names} <= allowed, path


@pytest.mark.parametrize("package", [topk_losses, functional, operators, testing])
def test_everything_exported_exists_and_is_documented(package):
    assert sorted(set(package.__all__)) == sorted(package.__all__)
    for name in package.__all__:
        assert getattr(package, name).__doc__


@pytest.mark.parametrize("name", functional.__all__)
def test_functions_say_what_they_take_return_and_raise(name):
    text = getattr(functional, name).__doc__
    for part in ("Args:", "Returns:", "Raises:", "Example:", ">>> "):
        assert part in text
