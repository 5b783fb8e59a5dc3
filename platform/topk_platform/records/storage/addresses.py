"""The addresses of stores: the supported object stores, and what their URIs may contain."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from topk_platform.errors import StoreError

__all__ = ["OBJECT_STORES", "ObjectStore", "check_path", "options_of"]

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
    """Raise ``StoreError`` if Delta Lake would misread a path.

    Args:
        store: The store's address, for the message.
        path: The path.
    """
    if match := _MISREAD.search(path):
        raise StoreError(
            f"store {store!r} cannot be used: its path contains {match.group()!r}, which Delta Lake would misread: "
            "choose another --store"
        )


def options_of(uri: str) -> dict[str, str]:
    """Return the options of an object store: those of its URI, and the environment's endpoint if the URI has none.

    Args:
        uri: The URI.

    Raises:
        StoreError: if the URI's scheme or an option is unknown, or it holds credentials or a ``#``.

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
    if "endpoint" in given:
        _check_endpoint("store's endpoint", given["endpoint"])
        return given
    return given | _endpoint_of_environment(kind)


def _endpoint_of_environment(kind: ObjectStore) -> dict[str, str]:
    for name in kind.endpoints:
        if endpoint := os.environ.get(name):
            _check_endpoint(name, endpoint)
            return {"endpoint": endpoint}
    return {}


def _check_endpoint(argument: str, endpoint: str) -> None:
    _check_no_credentials(argument, endpoint, "(?!)" if "@" in endpoint.partition("://")[2] else _HOST, _AWS)


def _check_no_credentials(argument: str, uri: str, names: str, credentials: str) -> None:
    """Raise ``StoreError`` if a URI holds a user's name or a password; a password may contain any character.

    The message must not show the URI. A URI of Azure may name a container before an @.
    """
    if not re.fullmatch(names, re.split(r"[/?#]", uri.partition("://")[2])[0]):
        raise StoreError(f"{argument} must not hold credentials: {credentials}")
