"""The store of results: a folder or an object store. Files are written atomically, so no reader sees half a file."""

from __future__ import annotations

import hashlib
import os
import posixpath
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlencode, urlsplit

from topk_platform.errors import StoreError, reason
from topk_platform.records.storage.backends import Folder, Listed, check_path, options_of
from topk_platform.specs.checks import absolute, check_not_blank

__all__ = ["MARK", "PAUSES", "QUARANTINE", "Store"]

MARK = "ledger.json"
"""The file that marks a study's folder; written before any trial starts."""

QUARANTINE = "damaged"
"""The folder of damaged files, in a study's folder; they are never deleted."""

_HIDDEN = "."
_PROBE_BYTES = 2**20  # the size of MLflow's database before the first trial
PAUSES = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0)
"""Seconds between tries to write to a store that refuses; four minutes in total."""

# A server that is down is reported within seconds; callers that can wait try again.
_PATIENCE: Any = {"max_retries": 4, "retry_timeout": timedelta(seconds=20)}


@dataclass(frozen=True)
class Store:
    """A folder on a local disk or NFS, or a folder in S3, GCS or Azure.

    Methods that read, list or write files raise ``StoreError`` if the store fails.

    Args:
        root: The absolute path of the folder, or the object store's URI without options.
        uri: The folder or URI as the user wrote it.
        options: The object store's options, such as its endpoint, without secrets.
    """

    root: str
    uri: str
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def open(cls, uri: str | Path) -> Store:
        """Return the store at a path or URI, without writing anything.

        A URI is ``s3://bucket/folder``, ``gs://bucket/folder`` or ``az://container/folder``. A URI of S3 may have
        options after a question mark: ``endpoint=http://HOST:PORT`` for MinIO, Ceph and the like, ``region`` and
        ``virtual_hosted_style_request``. If the URI names no endpoint, the first of the environment variables
        ``AWS_ENDPOINT_URL_S3``, ``AWS_ENDPOINT_URL`` and ``AWS_ENDPOINT`` that is set gives it. Credentials come from
        the environment, such as ``AWS_ACCESS_KEY_ID`` and ``AWS_SECRET_ACCESS_KEY``, or from the machine's role. A URI
        must not hold credentials, because it is printed and sent.

        Raises:
            UserError: if ``uri`` is blank.
            StoreError: if the URI's scheme or an option is unknown, if the URI holds credentials, or if Delta Lake
                would misread its path. This is the case for ``[``, ``]``, ``|``, ``^``, a backslash, a percent sign
                with two hexadecimal digits, and a control character.

        Example:
            >>> Store.open("s3://bucket/runs?endpoint=http://127.0.0.1:9000").at("digits").address
            's3://bucket/runs/digits?endpoint=http%3A%2F%2F127.0.0.1%3A9000'
        """
        text = str(uri)
        check_not_blank("store", text)
        if "://" not in text or text.startswith("file://"):
            path = Path(text.removeprefix("file://"))
            folder = path.absolute() if "\0" in text else absolute(path)
            # Delta Lake opens the targets of symbolic links. realpath refuses zero bytes.
            check_path(text, text if "\0" in text else os.path.realpath(folder))
            return cls(str(folder), str(folder) if "/../" in text else text)
        options = options_of(text)
        check_path(text, urlsplit(text).path)
        store = cls(text.partition("?")[0].rstrip("/"), text.partition("?")[0].rstrip("/"), options)
        with store._one_line_errors("opened"):
            store._files  # noqa: B018 - raises if the client cannot be made
        return store

    @property
    def local(self) -> Path | None:
        """The folder on this machine's file system, or None for an object store."""
        return None if "://" in self.root else Path(self.root)

    @property
    def address(self) -> str:
        """The address that opens this store in any process, in any working folder."""
        return f"{self.root}?{urlencode(self.options)}" if self.options else self.root

    @property
    def is_plain(self) -> bool:
        """Whether its server is reached without encryption, by ``http://``."""
        return self.options.get("endpoint", "").startswith("http://")

    @cached_property
    def _files(self) -> Folder:
        if self.local is not None:
            return Folder(self.local)
        from obstore.store import from_url  # noqa: PLC0415 - stores in a folder work without it

        config: Any = {f"aws_{name}": value for name, value in self.options.items()}
        clients: Any = {"allow_http": self.is_plain}
        files = from_url(self.root, config=config, client_options=clients, retry_config=_PATIENCE)
        return cast("Folder", files)  # it has the same methods, except for check_disk

    def __getstate__(self) -> dict[str, Any]:
        return {"root": self.root, "uri": self.uri, "options": self.options}

    def _errors(self, name: str, *errors: type[Exception]) -> tuple[type[Exception], ...]:
        """Return error types: the given ones and, for an object store, obstore's type of this name."""
        if self.local is not None:
            return errors
        from obstore import exceptions  # noqa: PLC0415 - as above

        return (*errors, getattr(exceptions, name))

    @contextmanager
    def _one_line_errors(self, use: str, *expected: type[Exception]) -> Iterator[None]:
        """Turn errors of the object store or the disk in the block into a one-line ``StoreError``.

        Args:
            use: What happens to the store in the block, such as ``"read"``.
            expected: Errors that are left as they are.
        """
        try:
            yield
        except expected:
            raise
        except self._errors("BaseError", OSError, ValueError) as error:
            raise StoreError(f"store {self.uri!r} cannot be {use}: {reason(error)}") from error

    def at(self, *parts: str) -> Store:
        """Return the store of a folder inside this one."""
        return Store(posixpath.join(self.root, *parts), posixpath.join(self.uri, *parts), self.options)

    def exists(self, name: str = "") -> bool:
        """Return whether there is a file with this name, or a folder that is not empty."""
        with suppress(FileNotFoundError), self._one_line_errors("read", FileNotFoundError):
            if name:
                self._files.head(name)
                return True
        inside = self._list(name)
        return bool(inside["objects"] or inside["common_prefixes"])

    def _list(self, folder: str) -> Listed:
        with self._one_line_errors("read"):
            return self._files.list_with_delimiter(f"{folder}/" if folder else None)

    def names(self, folder: str = "", suffix: str = "") -> list[str]:
        """Return the sorted names of the visible files of a folder; none if the folder does not exist."""
        return sorted(
            name for name in self._all_names(folder) if name.endswith(suffix) and not name.startswith(_HIDDEN)
        )

    def folders(self, folder: str = "") -> list[str]:
        """Return the sorted names of the folders directly inside."""
        return sorted(posixpath.basename(path.rstrip("/")) for path in self._list(folder)["common_prefixes"])

    def read(self, name: str) -> bytes:
        """Return a file's bytes.

        Raises:
            FileNotFoundError: if it does not exist.
            StoreError: if it cannot be read.
        """
        with self._one_line_errors("read", FileNotFoundError):
            return bytes(self._files.get(name).bytes())

    def digest(self, name: str) -> str:
        """Return the SHA-256 of a file in hexadecimal digits; a file on a disk is not read into memory as a whole.

        Raises:
            FileNotFoundError: if it does not exist.
            StoreError: if it cannot be read.
        """
        if self.local is None:
            return hashlib.sha256(self.read(name)).hexdigest()
        with self._one_line_errors("read", FileNotFoundError), (self.local / name).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def move(self, name: str, to: str) -> None:
        """Rename a file; a file with the new name is replaced."""
        with self._one_line_errors("written"):
            self._files.rename(name, to)

    def quarantine(self, name: str) -> None:
        """Move a file of a study into the folder of damaged files, beside any earlier file of the same name."""
        to, number = f"{QUARANTINE}/{name}", 0
        while self.exists(to):
            number += 1
            to = f"{QUARANTINE}/{name}.{number}"
        self.move(name, to)

    def files(self, folder: str = "") -> list[str]:
        """Return the sorted paths of all files below a folder, including hidden ones."""
        names = [posixpath.join(folder, name) for name in self._all_names(folder)]
        for inner in self.folders(folder):
            names += self.files(posixpath.join(folder, inner))
        return sorted(names)

    def _all_names(self, folder: str) -> list[str]:
        return [posixpath.basename(entry["path"]) for entry in self._list(folder)["objects"]]

    def write(self, name: str, data: bytes | Path) -> None:
        """Write a file atomically, in place of an existing one. On a disk, the written file survives a power cut.

        Raises:
            StoreError: if it cannot be written.
        """
        with self._one_line_errors("written"):
            self._files.put(name, data)

    def create(self, name: str, data: bytes) -> bool:
        """Create a file unless it exists; return whether it was created. Of two processes, only one succeeds."""
        with self._one_line_errors("written"):
            try:
                self._files.put(name, data, mode="create", use_multipart=False)
            except self._errors("AlreadyExistsError", FileExistsError):
                return False
        return True

    def delete(self, *names: str) -> None:
        """Delete files; missing ones are ignored."""
        with self._one_line_errors("written"):
            for name in names:
                with suppress(FileNotFoundError):
                    self._files.delete(name)

    def delete_folder(self, folder: str) -> None:
        """Delete a folder with everything in it, including half-written files of killed processes."""
        if self.local is None:
            self.delete(*self.files(folder))
            return
        with self._one_line_errors("written"), suppress(FileNotFoundError):
            shutil.rmtree(self.local / folder)

    @property
    def existing(self) -> Store:
        """This folder or, if it does not exist, its nearest existing parent."""
        folder = self.local
        while folder is not None and not folder.exists():
            folder = folder.parent
        return self if folder is None else Store(str(folder), self.uri)

    def check_disk(self) -> None:
        """Raise ``StoreError`` if a folder's disk is full or read-only; a quick check that writes nothing.

        Limits that only show when writing, such as a user's quota, are not detected. Object stores have no such limits.
        """
        if self.local is not None:
            with self._one_line_errors("written"):
                self._files.check_disk()

    def check_writable(self) -> None:
        """Raise ``StoreError`` unless a file of 1 MiB can be written here; the file is deleted again.

        Two drivers are kept apart by a file that only one of them can create, so that is checked too. On a local disk,
        the nearest existing folder is used, so that no folder is made for the check.
        """
        folder, probe = self.existing, f"{_HIDDEN}probe-{uuid.uuid4().hex}"
        if folder.local is not None and not folder.local.is_dir():
            raise StoreError(f"store {self.uri!r} cannot be written: {folder.root} is a file, not a folder")
        try:
            folder.write(probe, bytes(_PROBE_BYTES))
            twice = folder.create(probe, b"")
        except StoreError as error:  # it names the probe, which users do not know
            if not isinstance(why := error.__cause__, OSError) or why.strerror is None:
                raise
            raise StoreError(
                f"store {self.uri!r} cannot be written: {why.strerror} in {folder.root}"
            ) from why
        folder.delete(probe)
        if twice:
            raise StoreError(
                f"store {self.uri!r} lets two processes create the same file, which would destroy a ledger: its "
                "server must support conditional writes (If-None-Match)"
            )
