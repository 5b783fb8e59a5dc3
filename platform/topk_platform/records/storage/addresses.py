"""The addresses of stores: which kinds there are, their options, and what an address must not contain."""

from __future__ import annotations

import os
import re
from urllib.parse import parse_qsl, urlsplit

from topk_platform.errors import StoreError

__all__ = ["check_path", "options_of"]

_SCHEMES = ("s3", "gs", "az", "abfs", "abfss")
_AWS = "give them in the environment, as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
_AZURE = "give them in the environment, as AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY"
_ELSEWHERE = {
    **dict.fromkeys(("s3", "http"), _AWS),
    **dict.fromkeys(("az", "abfs", "abfss"), _AZURE),
    "gs": "give them in the environment, as GOOGLE_APPLICATION_CREDENTIALS",
}
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_BUCKET = r"[^@:]*"
_CONTAINER = r"[\w.$-]*(?:@[\w.-]+)?"
_NAMED = {"http": r"(?:[\w.-]*|\[[\w:.]+\])(?::\d*)?", "abfs": _CONTAINER, "abfss": _CONTAINER}
_OPTIONS = ("endpoint", "region", "virtual_hosted_style_request")
# What Delta Lake misreads in an address: it decodes `%20`, takes a backslash for a slash, and panics at the others. No
# way to write the address avoids that, nor does a symbolic link.
_UNHELD = re.compile(r"[\[\]|^\\]|%[0-9A-Fa-f]{2}|[\x00-\x1f\x7f\ud800-\udfff]")


def check_path(store: str, path: str) -> None:
    """Raise ``StoreError`` if Delta Lake would misread a path.

    Args:
        store: The store, as the user wrote it.
        path: Its path.
    """
    if match := _UNHELD.search(path):
        raise StoreError(
            f"store {store!r} cannot be used: its path has {match.group()!r}, which Delta Lake takes for something "
            "else: choose another --store"
        )


def options_of(text: str) -> dict[str, str]:
    """Return the options of an object store, from its URI or the environment.

    Args:
        text: The URI, as the user wrote it.

    Raises:
        StoreError: if the URI is of no known kind, has unknown options, or holds credentials.
    """
    parts = urlsplit(text)
    if parts.scheme not in _SCHEMES:
        raise StoreError(
            f"store of scheme {parts.scheme!r} cannot be opened: it must be a folder or a URI of {', '.join(_SCHEMES)}"
        )
    _check_open("store", text, parts.scheme)
    if parts.fragment:
        raise StoreError(
            f"store {text.partition('?')[0]!r} cannot be used: nothing can be stored under a name with '#'"
        )
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    known = _OPTIONS if parts.scheme == "s3" else ()
    if unknown := sorted(given.keys() - {*known}):
        raise StoreError(
            f"store: the options of {text.partition('?')[0]!r} are {', '.join(known) or 'none'}, got "
            f"{', '.join(unknown)}; credentials come from the environment"
        )
    if "endpoint" in given:
        _check_open("store's endpoint", given["endpoint"], "http")
    elif parts.scheme == "s3":
        given |= _endpoint_of_environment()
    return given


def _endpoint_of_environment() -> dict[str, str]:
    for name in _ENDPOINTS:
        if endpoint := os.environ.get(name):
            _check_open(name, endpoint, "http")
            return {"endpoint": endpoint}
    return {}


def _check_open(what: str, uri: str, scheme: str) -> None:
    """Raise ``StoreError`` if a URI holds a user's name or a password; a password may contain any character.

    The message must not show the URI. A URI of Azure may name a container before an @.
    """
    rest = uri.partition("://")[2]
    named = re.split(r"[/?#]", rest)[0]
    if not re.fullmatch(_NAMED.get(scheme, _BUCKET), named) or (scheme == "http" and "@" in rest):
        raise StoreError(f"{what} must not hold credentials: {_ELSEWHERE[scheme]}")
