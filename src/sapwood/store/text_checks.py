"""Validation of ids, queries and namespaces: texts that any database can store unchanged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sapwood.errors import ArgumentError, StoreError
from sapwood.lang.namespaces import check_prefix

LONGEST_ID = 500
"""characters: PostgreSQL refuses to index more than some 2,700 bytes"""


def check_text(text: object, what: str) -> None:
    """Raise StoreError unless a value is a string that PostgreSQL and UTF-8 can represent."""
    if not isinstance(text, str):
        raise StoreError(f"{what} must be a string, not {type(text).__name__}")
    if "\0" in text:
        raise StoreError(f"{what} must not hold the character NUL")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise StoreError(f"{what} must not hold half of a surrogate pair") from None


def check_id(id: object) -> None:
    """Raise StoreError for a value that cannot be the id of a subscription."""
    check_text(id, "an id")
    if not id:
        raise StoreError("an id must not be empty")
    if len(str(id)) > LONGEST_ID:
        raise StoreError(f"an id has at most {LONGEST_ID} characters, not {len(str(id)):,}")


def check_tenant(tenant: object) -> None:
    """Raise StoreError for a value that cannot be the name of a tenant."""
    check_text(tenant, "the name of a tenant")
    if len(str(tenant)) > LONGEST_ID:
        raise StoreError(f"the name of a tenant has at most {LONGEST_ID} characters")


def check_streams(streams: object) -> None:
    """Raise StoreError unless a value is a tuple of names of streams, each once."""
    if not isinstance(streams, tuple):
        raise StoreError(f"streams are a tuple of names, not {type(streams).__name__}")
    for name in streams:
        check_text(name, "the name of a stream")
    if len(set(streams)) < len(streams):
        raise StoreError("a stream is named twice")


def to_streams(streams: Iterable[str] | None) -> tuple[str, ...] | None:
    """Return names of streams as a tuple; StoreError for one string, which would be taken for its letters."""
    if isinstance(streams, str):
        raise StoreError(f"streams are several names, such as [{streams!r}], not one string")
    return None if streams is None else tuple(streams)


def could_be_id(id: object) -> bool:
    """Return whether a subscription may have this id; some databases refuse to look up others."""
    try:
        check_id(id)
    except StoreError:
        return False
    return True


def check_namespaces(namespaces: Mapping[str, str]) -> None:
    """Raise StoreError for a prefix that queries cannot use, or that XML reserves, and an empty namespace."""
    for prefix, uri in namespaces.items():
        check_text(prefix, "a prefix")
        check_text(uri, f"the namespace of {prefix!r}")
        try:
            check_prefix(prefix, uri)
        except ArgumentError as error:
            raise StoreError(str(error)) from None
