"""The results' place: a folder or an object store, written so that no reader ever sees half a file."""

from __future__ import annotations

import os
import posixpath
import shutil
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from topk_platform.errors import StoreError
from topk_platform.specs.checks import check_place

__all__ = ["Store", "reason", "sync"]

_HIDDEN = "."
_PROBE_BYTES = 2**20  # MLflow's database takes as much before the first trial
_SCHEMES = ("s3", "gs", "az", "abfs", "abfss")
_OPTIONS = ("endpoint", "region", "virtual_hosted_style_request")
# A server that is down is told of in seconds: what may last longer is tried again by those who can wait.
_PATIENCE: Any = {"max_retries": 4, "retry_timeout": timedelta(seconds=20)}


@dataclass(frozen=True)
class Store:
    """A folder on a local disk or NFS, or a place in S3, GCS or Azure.

    Args:
        root: The absolute path of the folder, or the object store's URI without options.
        uri: What the user called it.
        options: The object store's, such as its endpoint; never a secret.
    """

    root: str
    uri: str
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def open(cls, uri: str | Path) -> Store:
        """Return the store at a path or URI; nothing is written.

        A URI is ``s3://bucket/folder``, ``gs://bucket/folder`` or ``az://container/folder``. Behind a question mark
        one of S3 may have options: ``endpoint=http://HOST:PORT`` for MinIO, Ceph and the like, ``region`` and
        ``virtual_hosted_style_request``. Credentials come from the environment, as ``AWS_ACCESS_KEY_ID`` and
        ``AWS_SECRET_ACCESS_KEY`` do, or from the machine's role, and have no place in a URI, which is shown and sent.

        Raises:
            UserError: if it is blank.
            StoreError: if no file system understands the URI, or it holds credentials.

        Example:
            >>> Store.open("s3://bucket/runs?endpoint=http://127.0.0.1:9000").at("digits").address
            's3://bucket/runs/digits?endpoint=http%3A%2F%2F127.0.0.1%3A9000'
        """
        text = str(uri)
        check_place("store", text)
        if "://" not in text or text.startswith("file://"):
            return cls(str(Path(text.removeprefix("file://")).absolute()), text)
        options = _options(text)
        store = cls(text.partition("?")[0].rstrip("/"), text.partition("?")[0].rstrip("/"), options)
        with store._told("opened"):
            store._objects  # noqa: B018 - that it can be made
        return store

    @property
    def local(self) -> Path | None:
        """The folder on this machine's file system, or None for an object store."""
        return None if "://" in self.root else Path(self.root)

    @property
    def address(self) -> str:
        """What opens this store in any process, whatever folder it runs in."""
        return f"{self.root}?{urlencode(self.options)}" if self.options else self.root

    @property
    def is_plain(self) -> bool:
        """Whether its server is spoken to without encryption, as the URI says by ``http://``."""
        return self.options.get("endpoint", "").startswith("http://")

    @cached_property
    def _objects(self) -> Any:
        from obstore.store import from_url  # noqa: PLC0415 - of object stores alone

        config: Any = {f"aws_{name}": value for name, value in self.options.items()}
        clients: Any = {"allow_http": self.is_plain}
        return from_url(self.root, config=config, client_options=clients, retry_config=_PATIENCE)

    def __getstate__(self) -> dict[str, Any]:
        return {"root": self.root, "uri": self.uri, "options": self.options}

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """Turn whatever the object store or the disk says within the block into one line."""
        try:
            yield
        except _failures() as error:
            raise StoreError(f"store {self.uri!r} cannot be {what}: {reason(error)}") from error

    def at(self, *parts: str) -> Store:
        """Return the store of a folder inside this one."""
        return Store(posixpath.join(self.root, *parts), posixpath.join(self.uri, *parts), self.options)

    def exists(self, name: str = "") -> bool:
        """Return whether there is a file of this name, or a folder with something in it."""
        if self.local is not None:
            return (self.local / name).exists()
        found = self._list(name)
        return bool(found["objects"] or found["common_prefixes"]) or bool(name and self._is_file(name))

    def _is_file(self, name: str) -> bool:
        with self._told("read"):
            try:
                self._objects.head(name)
            except FileNotFoundError:
                return False
        return True

    def _list(self, folder: str) -> Any:
        if self.local is not None and not (self.local / folder).is_dir():
            if (self.local / folder).exists():
                raise StoreError(f"store {self.uri!r} cannot be read: it is no folder")
            return {"objects": [], "common_prefixes": []}
        with self._told("read"):
            if self.local is not None:
                return _listed(self.local / folder)
            return self._objects.list_with_delimiter(f"{folder}/" if folder else None)

    def names(self, folder: str = "", suffix: str = "") -> list[str]:
        """Return the sorted names of the visible files of a folder; none where there is no folder."""
        names = (posixpath.basename(found["path"]) for found in self._list(folder)["objects"])
        return sorted(name for name in names if name.endswith(suffix) and not name.startswith(_HIDDEN))

    def folders(self, folder: str = "") -> list[str]:
        """Return the sorted names of the folders directly inside."""
        return sorted(posixpath.basename(path.rstrip("/")) for path in self._list(folder)["common_prefixes"])

    def read(self, name: str) -> bytes:
        """Return a file's bytes.

        Raises:
            FileNotFoundError: if it is not there.
            StoreError: if it cannot be read.
        """
        if self.local is not None:
            return (self.local / name).read_bytes()
        with self._told("read"):
            try:
                return bytes(self._objects.get(name).bytes())
            except FileNotFoundError as error:
                missing = error
        raise missing

    def write(self, name: str, data: bytes) -> None:
        """Write a file whole or not at all; one that is there is replaced. On a disk it then survives a power cut.

        Raises:
            StoreError: if it cannot be written.
        """
        with self._told("written"):
            if self.local is not None:
                _replace(self.local / name, data)
            else:
                self._objects.put(name, data)

    def write_file(self, name: str, file: Path) -> None:
        """Write a copy of a file of this machine, as :meth:`write` does."""
        with self._told("written"):
            if self.local is not None:
                _replace(self.local / name, file)
            else:
                self._objects.put(name, file)

    def create(self, name: str, data: bytes) -> bool:
        """Write a file unless there is one of this name, which no two processes can both do; return whether it was."""
        with self._told("written"):
            if self.local is not None:
                return _create(self.local / name, data)
            from obstore.exceptions import AlreadyExistsError  # noqa: PLC0415 - as above

            try:
                self._objects.put(name, data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
        return True

    def delete(self, *names: str) -> None:
        """Delete files; one that is not there is as good as deleted."""
        with self._told("written"):
            for name in names:
                with suppress(FileNotFoundError):
                    if self.local is not None:
                        (self.local / name).unlink()
                    else:
                        self._objects.delete(name)

    def delete_folder(self, name: str) -> None:
        """Delete a folder with the files directly inside."""
        self.delete(*(f"{name}/{file}" for file in self.names(name)))
        if self.local is not None:
            with suppress(OSError):  # something was written into it meanwhile
                (self.local / name).rmdir()

    def check_writable(self) -> None:
        """Raise ``StoreError`` unless a file of a MiB can be written here; nothing is left of the attempt.

        On a local disk the nearest folder that exists is tried, so that no folder has to be made for it.
        """
        folder = self.local
        while folder is not None and not folder.exists():
            folder = folder.parent
        place = self if folder is None else Store(str(folder), self.uri)
        probe = f"{_HIDDEN}probe-{uuid.uuid4().hex}"
        place.write(probe, bytes(_PROBE_BYTES))
        place.delete(probe)


def _failures() -> tuple[type[Exception], ...]:
    """Return what stores raise: the system's errors, and those of obstore where it is in use."""
    if "obstore" not in sys.modules:
        return OSError, ValueError
    from obstore.exceptions import BaseError  # noqa: PLC0415 - as above

    return BaseError, OSError, ValueError


def _listed(folder: Path) -> dict[str, list[Any]]:
    """Return the files and folders in a folder, as an object store tells them."""
    found: dict[str, list[Any]] = {"objects": [], "common_prefixes": []}
    for path in folder.iterdir():
        if path.is_dir():
            found["common_prefixes"].append(path.name)
        else:
            found["objects"].append({"path": path.name})
    return found


def _create(path: Path, data: bytes) -> bool:
    """Write a file unless it is there: whole under a name of its own, then given this one, unless that is taken."""
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f"{_HIDDEN}{path.name}.{uuid.uuid4().hex}.tmp")
    hidden.write_bytes(data)
    try:
        path.hardlink_to(hidden)
    except FileExistsError:
        return False
    finally:
        hidden.unlink()
    return True


def reason(error: BaseException) -> str:
    """Return the first line of what an error says, without the library's account of where it arose."""
    said = str(error).strip().partition("\n")[0]
    return said or type(error).__name__


def _options(text: str) -> dict[str, str]:
    parts = urlsplit(text)
    if parts.scheme not in _SCHEMES:
        raise StoreError(
            f"store of scheme {parts.scheme!r} cannot be opened: it must be a folder or a URI of {', '.join(_SCHEMES)}"
        )
    if "@" in parts.netloc and parts.scheme == "s3":
        raise StoreError(
            "store must not hold credentials: give them in the environment, as AWS_ACCESS_KEY_ID"
        )
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    known = _OPTIONS if parts.scheme == "s3" else ()
    if unknown := sorted(given.keys() - {*known}):
        raise StoreError(
            f"store: the options of {text.partition('?')[0]!r} are {', '.join(known) or 'none'}, got "
            f"{', '.join(unknown)}; credentials come from the environment"
        )
    return given


def _replace(path: Path, data: bytes | Path) -> None:
    """Write a hidden file beside the place and move it there; both reach the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f"{_HIDDEN}{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        if isinstance(data, Path):
            shutil.copyfile(data, hidden)
        else:
            hidden.write_bytes(data)
        sync(hidden)
        hidden.replace(path)
    except OSError:
        with suppress(OSError):  # the first error is the one to tell
            hidden.unlink()
        raise
    sync(path.parent)


def sync(path: Path) -> None:
    """Bring a file, or a folder's names, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
