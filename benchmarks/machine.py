"""What this machine has: GPU, driver, torch, Triton, Python, and which packages are missing.

    python benchmarks/machine.py [--device cuda]

The exit code is 1 where training on the device is out of the question.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess

NEEDED = ("torch", "torchvision", "numpy", "pyarrow", "scikit-learn", "filelock", "pytest", "hypothesis")
USED = ("triton", "numba", "safetensors", "ray", "optuna", "mlflow", "pytest-timeout", "pytest-xdist")


def version(package: str) -> str:
    """The version of an installed package, or nothing."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def driver() -> str:
    """What the driver says of its GPUs, or why it says nothing."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return "nvidia-smi is not there"
    query = "--query-gpu=name,driver_version,memory.total,memory.used,clocks.sm,power.draw,temperature.gpu"
    run = subprocess.run([command, query, "--format=csv"], capture_output=True, text=True, check=False)  # noqa: S603
    return (run.stdout + run.stderr).strip()


def gpu() -> str:
    """What torch says of the GPU; nothing if it finds none."""
    import torch  # noqa: PLC0415 - may be missing

    if not torch.cuda.is_available():
        return ""
    result = torch.cuda.get_device_properties()
    size = result.total_memory / 2**30
    return (
        f"torch finds {result.name}, capability {result.major}.{result.minor}, "
        f"{result.multi_processor_count} processors, {size:.0f} GiB, CUDA {torch.version.cuda}; "
        f"{torch.cuda.device_count()} such"
    )


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    return parser.parse_args()


def main() -> None:
    """Print it."""
    options = parse()
    versions = {package: version(package) for package in (*NEEDED, *USED)}
    print(f"Python {platform.python_version()}, {platform.platform()}, {os.cpu_count()} cores")
    print(", ".join(f"{package} {result}" for package, result in versions.items() if result))
    print(f"missing: {', '.join(package for package, result in versions.items() if not result) or 'nothing'}")
    print("compilers: " + ", ".join(filter(None, map(shutil.which, ("cc", "gcc", "c++", "nvcc")))))
    print(driver())
    if missing := [package for package in NEEDED if not versions[package]]:
        raise SystemExit(f"training needs {', '.join(missing)}")
    result = gpu()
    print(result or "torch finds no CUDA device")
    if options.device == "cuda" and not result:
        raise SystemExit("no CUDA device: --device cpu rehearses all that a CPU can")


if __name__ == "__main__":
    main()
