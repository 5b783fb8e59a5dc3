"""A local folder with the same methods as obstore, so that stores use folders and object stores alike."""

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

_ROOM = 2**20  # bytes; a disk with less counts as full


class Listed(TypedDict):
    """The files and the folders in a folder."""

    objects: Sequence[dict[str, str]]
    common_prefixes: Sequence[str]


class Content(Protocol):
    """A file's content."""

    def bytes(self) -> bytes:
        """Return the content."""
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
        """Return a file's content."""
        ...

    def head(self, path: str) -> object:
        """Raise ``FileNotFoundError`` unless the file exists."""
        ...

    def list_with_delimiter(self, prefix: str | None = None) -> Listed:
        """Return the files and folders directly inside."""
        ...

    def delete(self, paths: str) -> object:
        """Delete a file."""
        ...

    def rename(self, from_: str, to: str) -> object:
        """Rename a file."""
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
        use_multipart: bool | None = None,  # noqa: ARG002 - as in obstore
    ) -> None:
        """Write a file, from bytes or as a copy.

        Args:
            path: Its path in the folder.
            file: The file's content.
            mode: Whether an existing file is replaced.
            use_multipart: Ignored; for compatibility with obstore.

        Raises:
            FileExistsError: if the file exists and ``mode`` is ``"create"``.
        """
        target = self._root / path
        hidden = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
        try:
            _fill(hidden, file)
            sync(hidden)
            if mode == "create":
                target.hardlink_to(hidden)
            else:
                hidden.replace(target)
        finally:
            with suppress(OSError):  # already moved, or the first error is the one to report
                hidden.unlink()
        sync(target.parent)

    def get(self, path: str) -> Content:
        """Return a file's content."""
        return _Held((self._root / path).read_bytes())

    def head(self, path: str) -> None:
        """Raise ``FileNotFoundError`` unless the file exists."""
        if not (self._root / path).is_file():
            raise FileNotFoundError(f"{self._root / path} does not exist")

    def list_with_delimiter(self, prefix: str | None = None) -> Listed:
        """Return the files and folders directly inside; none if the folder does not exist."""
        folder = self._root / (prefix or "")
        if not folder.is_dir():
            if self._root.exists() and not self._root.is_dir():
                raise NotADirectoryError(f"{self._root} is not a folder")
            return {"objects": [], "common_prefixes": []}
        with os.scandir(folder) as entries:  # it knows the kinds of files without asking for each
            kinds = {entry.name: _is_folder(entry) for entry in entries}
        folders = [name for name, is_folder in kinds.items() if is_folder]
        files = [{"path": name} for name, is_folder in kinds.items() if not is_folder]
        return {"objects": files, "common_prefixes": [name for name in folders if _holds(folder / name)]}

    def delete(self, paths: str) -> None:
        """Delete a file. If its folder is then empty, delete the folder, and likewise the folder's parents."""
        target = self._root / paths
        target.unlink()
        self._clear(target.parent)

    def rename(self, from_: str, to: str) -> None:
        """Rename a file. If its old folder is then empty, delete that folder, and likewise the folder's parents."""
        source, target = self._root / from_, self._root / to
        target.parent.mkdir(parents=True, exist_ok=True)
        source.replace(target)
        sync(target.parent)
        self._clear(source.parent)

    def _clear(self, folder: Path) -> None:
        """Delete a folder if it is empty, and each of its parents that is then empty."""
        while folder != self._root:
            try:
                folder.rmdir()
            except OSError:  # it is not empty
                return
            folder = folder.parent

    def check_room(self) -> None:
        """Raise ``OSError`` if the disk is full or read-only."""
        disk = os.statvfs(self._root)
        if disk.f_flag & os.ST_RDONLY:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(self._root))
        # Some network file systems report zero blocks.
        if disk.f_blocks and disk.f_bavail * disk.f_frsize < _ROOM:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._root))


class _Held:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def bytes(self) -> bytes:
        return self._data


def _fill(hidden: Path, file: bytes | Path, tries_left: int = 3) -> None:
    """Write a new file. Try again if another process deletes the folder because its last file is gone."""
    try:
        hidden.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(file, Path):
            shutil.copyfile(file, hidden)
        else:
            hidden.write_bytes(file)
    except FileNotFoundError:
        if not tries_left:
            raise
        _fill(hidden, file, tries_left - 1)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a folder or a link to one. A link that leads nowhere, or to itself, is not."""
    return Path(entry.path).is_dir() if entry.is_symlink() else entry.is_dir(follow_symlinks=False)


def _holds(folder: Path) -> bool:
    """Return whether a folder contains anything; False if it is deleted meanwhile."""
    with suppress(FileNotFoundError):
        return any(folder.iterdir())
    return False


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
