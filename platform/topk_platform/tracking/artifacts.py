"""Files of MLflow's runs and models, written to a folder of this machine or sent to a server."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from mlflow import MlflowClient

__all__ = ["Artifacts"]


@dataclass(frozen=True)
class Artifacts:
    """The files of one experiment, in a folder or on a server.

    Args:
        client: A client of the tracking server.
        folder: The experiment's folder if the artifacts are on this machine, where ``topk ui`` serves them; None if
            they are sent to the server.
    """

    client: MlflowClient
    folder: Path | None

    def write_run(self, run_id: str, name: str, content: bytes) -> None:
        """Write a file of a run; its name may have folders in it."""
        if self.folder is not None:
            _write(self.folder / run_id / "artifacts", {name: content})
            return
        with tempfile.TemporaryDirectory() as folder:
            path = PurePosixPath(name)
            _write(Path(folder), {path.name: content})
            inside = None if path.parent == PurePosixPath() else str(path.parent)
            self.client.log_artifact(run_id, str(Path(folder) / path.name), inside)

    def write_model(
        self, model_id: str, files: Mapping[str, bytes], stored: Mapping[str, Path] | None = None
    ) -> None:
        """Write files of a logged model.

        Args:
            model_id: The model.
            files: The files' contents, by their names in the model's folder.
            stored: Files on this machine with the same contents, by the same names. They are linked, so that nothing
                is kept twice, if the artifacts are on this machine too and its file system can link.
        """
        if self.folder is not None:
            _write(self.folder / "models" / model_id / "artifacts", files, stored or {})
            return
        with tempfile.TemporaryDirectory() as folder:
            _write(Path(folder), files)
            self.client.log_model_artifacts(model_id, folder)


def _write(folder: Path, files: Mapping[str, bytes], stored: Mapping[str, Path] | None = None) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if stored is None or name not in stored or not _linked(stored[name], path):
            path.write_bytes(content)


def _linked(stored: Path, path: Path) -> bool:
    try:
        path.unlink(missing_ok=True)
        os.link(stored, path)
    except OSError:  # this file system cannot link
        return False
    return True
