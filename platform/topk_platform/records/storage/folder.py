"""A local folder with the methods of obstore that stores use, so that both kinds are used alike."""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, Protocol, TypedDict

__all__ = ["Content", "Files", "Folder", "Listed", "sync"]

_ROOM = 2**20  # bytes; a disk that has no more is as good as full


class Listed(TypedDict):
    """The files in a folder, and the folders."""

    objects: Sequence[dict[str, str]]
    common_prefixes: Sequence[str]


class Content(Protocol):
    """A file's content."""

    def bytes(self) -> bytes:
        """Return it."""
        ...


class Files(Protocol):
    """The methods that a store needs, named as in obstore."""

    def put(
        self,
        path: str,
        file: bytes | Path,
        *,
        mode: Literal["create", "overwrite"] = "overwrite",
        use_multipart: bool | None = None,
    ) -> object:
        """Write a file atomically."""
        ...

    def get(self, path: str) -> Content:
        """Return what a file holds."""
        ...

    def head(self, path: str) -> object:
        """Raise ``FileNotFoundError`` unless there is such a file."""
        ...

    def list_with_delimiter(self, prefix: str | None = None) -> Listed:
        """Return what is directly inside."""
        ...

    def delete(self, paths: str) -> object:
        """Delete a file."""
        ...

    def rename(self, from_: str, to: str) -> object:
        """Give a file another name."""
        ...


class Folder:
    """A folder on a local disk or NFS. Written files survive a power cut, and no reader ever sees half a file.

    As in an object store, a folder inside it exists as long as it holds a file.

    Args:
        root: Its absolute path; it need not exist yet.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def put(
        self,
        path: str,
        file: bytes | Path,
        *,
        mode: Literal["create", "overwrite"] = "overwrite",
        use_multipart: bool | None = None,  # noqa: ARG002 - of object stores
    ) -> None:
        """Write a file, from bytes or as a copy.

        Args:
            path: Its place in the folder.
            file: The file's content.
            mode: Whether an existing file is replaced.
            use_multipart: Ignored; for compatibility with obstore.

        Raises:
            FileExistsError: if there is one, and ``mode`` is ``"create"``.
        """
        place = self._root / path
        hidden = place.with_name(f".{place.name}.{uuid.uuid4().hex}.tmp")
        try:
            _fill(hidden, file)
            sync(hidden)
            if mode == "create":
                place.hardlink_to(hidden)
            else:
                hidden.replace(place)
        finally:
            with suppress(OSError):  # moved, or the first error is the one to tell
                hidden.unlink()
        sync(place.parent)

    def get(self, path: str) -> Content:
        """Return what a file holds."""
        return _Held((self._root / path).read_bytes())

    def head(self, path: str) -> None:
        """Raise ``FileNotFoundError`` unless there is such a file."""
        if not (self._root / path).is_file():
            raise FileNotFoundError(f"{self._root / path} is not there")

    def list_with_delimiter(self, prefix: str | None = None) -> Listed:
        """Return what is directly inside, nothing where there is no folder."""
        folder = self._root / (prefix or "")
        if not folder.is_dir():
            if self._root.exists() and not self._root.is_dir():
                raise NotADirectoryError(f"{self._root} is no folder")
            return {"objects": [], "common_prefixes": []}
        places = list(folder.iterdir())
        folders = {place.name for place in places if place.is_dir()}
        files = [{"path": place.name} for place in places if place.name not in folders]
        return {"objects": files, "common_prefixes": [name for name in folders if _holds(folder / name)]}

    def delete(self, paths: str) -> None:
        """Delete a file, and the folder that it was the last one of."""
        place = self._root / paths
        place.unlink()
        if place.parent != self._root:
            with suppress(OSError):  # there are others
                place.parent.rmdir()

    def rename(self, from_: str, to: str) -> None:
        """Give a file another name, and delete the folder that it was the last one of."""
        place, there = self._root / from_, self._root / to
        there.parent.mkdir(parents=True, exist_ok=True)
        place.replace(there)
        sync(there.parent)
        self._clear(place.parent)

    def _clear(self, folder: Path) -> None:
        """Delete a folder without files, and those that it was the last one of."""
        while folder != self._root:
            try:
                folder.rmdir()
            except OSError:  # there are others
                return
            folder = folder.parent

    def check_room(self) -> None:
        """Raise ``OSError`` if the disk is full or read-only."""
        disk = os.statvfs(self._root)
        if disk.f_flag & os.ST_RDONLY:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(self._root))
        if disk.f_blocks and disk.f_bavail * disk.f_frsize < _ROOM:  # some network file systems count nothing
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._root))


class _Held:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def bytes(self) -> bytes:
        return self._data


def _fill(hidden: Path, file: bytes | Path, tries_left: int = 3) -> None:
    """Write a new file; its folder may be deleted meanwhile, with the last file that another process had in it."""
    hidden.parent.mkdir(parents=True, exist_ok=True)
    try:
        if isinstance(file, Path):
            shutil.copyfile(file, hidden)
        else:
            hidden.write_bytes(file)
    except FileNotFoundError:
        if not tries_left:
            raise
        _fill(hidden, file, tries_left - 1)


def _holds(folder: Path) -> bool:
    """Return whether there is anything in a folder, which may be deleted meanwhile."""
    with suppress(FileNotFoundError):
        return any(folder.iterdir())
    return False


def sync(path: Path) -> None:
    """Bring a file, or a folder's names, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
