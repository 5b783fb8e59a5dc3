"""The results' place: a folder or an object store, written so that no reader ever sees half a file."""

from __future__ import annotations

import posixpath
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pyarrow import fs

from topk_platform.errors import StoreError
from topk_platform.specs.checks import check_place

__all__ = ["Store"]

_HIDDEN = "."
_PROBE_BYTES = 2**20  # MLflow's database takes as much before the first trial


@dataclass(frozen=True)
class Store:
    """A folder on a local disk, NFS, S3 or GCS.

    Args:
        filesystem: Where it lies.
        root: Its path there.
        uri: What the user called it.
    """

    filesystem: fs.FileSystem
    root: str
    uri: str

    @classmethod
    def open(cls, uri: str | Path) -> Store:
        """Return the store at a path or URI (``runs``, ``s3://bucket/runs``); nothing is written.

        Raises:
            UserError: if it is blank.
            StoreError: if no file system understands the URI.
        """
        text = str(uri)
        check_place("store", text)
        try:
            if "://" in text:
                filesystem, root = fs.FileSystem.from_uri(text)
                return cls(filesystem, root.rstrip("/"), text)
            return cls(fs.LocalFileSystem(), str(Path(text).absolute()), text)
        except (ValueError, OSError) as error:
            raise StoreError(f"store {text!r} cannot be opened: {error}") from error

    @property
    def local(self) -> Path | None:
        """The folder on this machine's file system, or None for an object store."""
        return Path(self.root) if isinstance(self.filesystem, fs.LocalFileSystem) else None

    @property
    def address(self) -> str:
        """What opens this store in any process, whatever folder it runs in."""
        return self.root if self.local is not None else self.uri

    def at(self, *parts: str) -> Store:
        """Return the store of a folder inside this one."""
        return Store(self.filesystem, self.path(*parts), posixpath.join(self.uri, *parts))

    def path(self, *parts: str) -> str:
        """Return the path of something in the store, for its file system."""
        return posixpath.join(self.root, *parts)

    def exists(self, name: str = "") -> bool:
        """Return whether there is a file or folder of this name."""
        return bool(
            self.filesystem.get_file_info(self.path(name) if name else self.root).type != fs.FileType.NotFound
        )

    def names(self, folder: str = "", suffix: str = "") -> list[str]:
        """Return the sorted names of the visible files of a folder; none where there is no folder."""
        infos = self._infos(self.path(folder) if folder else self.root)
        names = (info.base_name for info in infos if info.type == fs.FileType.File)
        return sorted(name for name in names if name.endswith(suffix) and not name.startswith(_HIDDEN))

    def folders(self) -> list[str]:
        """Return the sorted names of the folders directly inside."""
        return sorted(info.base_name for info in self._infos(self.root) if info.type == fs.FileType.Directory)

    def _infos(self, folder: str) -> list[fs.FileInfo]:
        try:
            infos: list[fs.FileInfo] = self.filesystem.get_file_info(
                fs.FileSelector(folder, allow_not_found=True)
            )
        except OSError as error:
            raise StoreError(f"store {self.uri!r} cannot be read: {error}") from error
        return infos

    def read(self, name: str) -> bytes:
        """Return a file's bytes."""
        with self.filesystem.open_input_stream(self.path(name)) as stream:
            return bytes(stream.read())

    def write(self, name: str, data: bytes) -> None:
        """Write a file whole or not at all; one that is there is replaced.

        Object stores make an object visible when it is complete; elsewhere a hidden file is moved into place.

        Raises:
            StoreError: if it cannot be written.
        """
        path = self.path(name)
        folder, base = posixpath.split(path)
        direct = not isinstance(self.filesystem, fs.LocalFileSystem)
        target = path if direct else posixpath.join(folder, f"{_HIDDEN}{base}.{uuid.uuid4().hex}.tmp")
        try:
            self.filesystem.create_dir(folder, recursive=True)
            with self.filesystem.open_output_stream(target) as stream:
                stream.write(data)
            if not direct:
                self.filesystem.move(target, path)
        except OSError as error:
            if not direct:
                with suppress(OSError):  # the first error is the one to tell
                    Path(target).unlink()
            raise StoreError(f"store {self.uri!r} cannot be written: {error}") from error

    def delete(self, name: str) -> None:
        """Delete a file; one that is not there is as good as deleted."""
        if self.exists(name):
            self.filesystem.delete_file(self.path(name))

    def check_writable(self) -> None:
        """Raise ``StoreError`` unless a file of a MiB can be written here; nothing is left of the attempt.

        On a local disk the nearest folder that exists is tried, so that no folder has to be made for it.
        """
        folder = self.local
        while folder is not None and not folder.exists():
            folder = folder.parent
        place = self if folder is None else Store(self.filesystem, str(folder), self.uri)
        probe = f"{_HIDDEN}probe-{uuid.uuid4().hex}"
        place.write(probe, bytes(_PROBE_BYTES))
        place.delete(probe)
