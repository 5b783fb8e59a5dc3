"""Where a store's files are: a local folder with the same methods as obstore, and the addresses of object stores."""

from __future__ import annotations

import errno
import os
import re
import shutil
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Literal, TypedDict
from urllib.parse import parse_qsl, urlsplit

from topk_platform.errors import StoreError

__all__ = [
    "OBJECT_STORES",
    "Folder",
    "Listed",
    "ObjectStore",
    "check_path",
    "options_of",
    "sync",
]

_LEAST_FREE = 2**20  # bytes; a disk with less counts as full


class Listed(TypedDict):
    """The files and the folders in a folder."""

    objects: Sequence[dict[str, str]]
    common_prefixes: Sequence[str]


class Folder:
    """A folder on a local disk or NFS. Written files survive a power cut, and no reader ever sees half a file.

    It has the methods of an object store in obstore that a store needs. As there, a folder inside it exists as long as
    it holds a file.

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
        """Write a file, from bytes or as a copy; ``mode`` says whether an existing file is replaced.

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

    def get(self, path: str) -> SimpleNamespace:
        """Return what has the file's content as ``bytes()``."""
        content = (self._root / path).read_bytes()
        return SimpleNamespace(bytes=lambda: content)

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
            # A link that leads nowhere, or to itself, is no folder.
            kinds = {e.name: Path(e.path).is_dir() if e.is_symlink() else e.is_dir() for e in entries}
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

    def check_disk(self) -> None:
        """Raise ``OSError`` if the disk is full or read-only."""
        disk = os.statvfs(self._root)
        if disk.f_flag & os.ST_RDONLY:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(self._root))
        # Some network file systems report zero blocks.
        if disk.f_blocks and disk.f_bavail * disk.f_frsize < _LEAST_FREE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._root))


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


_AWS = "give them in the environment, as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
_AZURE = "give them in the environment, as AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY"
_GOOGLE = "give them in the environment, as GOOGLE_APPLICATION_CREDENTIALS"
_BUCKET = r"[^@:]*"
_CONTAINER = r"[\w.$-]*(?:@[\w.-]+)?"
_HOST = r"(?:[\w.-]*|\[[\w:.]+\])(?::\d*)?"

# Texts that Delta Lake misreads in an address: it decodes `%20`, treats a backslash as a slash, and panics at the
# others. Neither another spelling of the address nor a symbolic link avoids this.
_MISREAD = re.compile(r"[\[\]|^\\]|%[0-9A-Fa-f]{2}|[\x00-\x1f\x7f\ud800-\udfff]")


@dataclass(frozen=True)
class ObjectStore:
    """A kind of object store.

    Args:
        credentials: How to give its credentials, for the error about a URI that holds them.
        names: A pattern for the part between ``://`` and the path, such as a bucket's name.
        options: The options that a URI may have after a question mark.
        endpoints: The environment variables that may name the server. The first one that is set is used.
    """

    credentials: str
    names: str = _BUCKET
    options: tuple[str, ...] = ()
    endpoints: tuple[str, ...] = ()


OBJECT_STORES = {
    "s3": ObjectStore(
        _AWS,
        options=("endpoint", "region", "virtual_hosted_style_request"),
        endpoints=("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    ),
    "gs": ObjectStore(_GOOGLE),
    "az": ObjectStore(_AZURE),
    "abfs": ObjectStore(_AZURE, _CONTAINER),
    "abfss": ObjectStore(_AZURE, _CONTAINER),
}
"""The object stores by the scheme of their URIs. obstore must know the scheme, and Delta Lake as well."""


def check_path(store: str, path: str) -> None:
    """Raise ``StoreError`` if Delta Lake would misread a path of the store."""
    if match := _MISREAD.search(path):
        raise StoreError(
            f"store {store!r} cannot be used: its path contains {match.group()!r}, which Delta Lake would misread: "
            "choose another --store"
        )


def options_of(uri: str) -> dict[str, str]:
    """Return the options of an object store: those of its URI, and the environment's endpoint if the URI has none.

    Raises:
        StoreError: if the URI's scheme or an option is unknown, its endpoint is empty, or it holds credentials or a
            ``#``.

    Example:
        >>> options_of("s3://bucket/runs?region=eu&endpoint=http://127.0.0.1:9000")
        {'region': 'eu', 'endpoint': 'http://127.0.0.1:9000'}
    """
    parts, plain = urlsplit(uri), uri.partition("?")[0]
    if parts.scheme not in OBJECT_STORES:
        raise StoreError(
            f"store of scheme {parts.scheme!r} cannot be opened: it must be a folder or a URI of "
            f"{', '.join(OBJECT_STORES)}"
        )
    kind = OBJECT_STORES[parts.scheme]
    _check_no_credentials("store", uri, kind.names, kind.credentials)
    if parts.fragment:
        raise StoreError(f"store {plain!r} cannot be used: nothing can be stored under a name with '#'")
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := sorted(given.keys() - {*kind.options}):
        raise StoreError(
            f"store: the options of {plain!r} are {', '.join(kind.options) or 'none'}, got "
            f"{', '.join(unknown)}; credentials come from the environment"
        )
    if given.get("endpoint") == "":
        raise StoreError(f"store {plain!r}: the option endpoint must name a server, got nothing")
    named = ((name, os.environ.get(name)) for name in kind.endpoints)
    for name, endpoint in (("store's endpoint", given.get("endpoint")), *named):
        if endpoint:
            host = "(?!)" if "@" in endpoint.partition("://")[2] else _HOST
            _check_no_credentials(name, endpoint, host, _AWS)
            return {**given, "endpoint": endpoint}
    return given


def _check_no_credentials(argument: str, uri: str, names: str, credentials: str) -> None:
    """Raise ``StoreError`` if a URI holds a user's name or a password; a password may contain any character.

    The message must not show the URI. A URI of Azure may name a container before an @.
    """
    if not re.fullmatch(names, re.split(r"[/?#]", uri.partition("://")[2])[0]):
        raise StoreError(f"{argument} must not hold credentials: {credentials}")
