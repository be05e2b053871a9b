"""Validation of ids, queries and namespaces: texts that any database can store unchanged."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sapwood.errors import StoreError
from sapwood.lang.names import NAME, name_length
from sapwood.lang.namespaces import ANY_PREFIX

LONGEST_ID = 500
"""characters: PostgreSQL refuses to index more than some 2,700 bytes"""

_NAME = re.compile(NAME)
_XML = "xml", "xmlns"


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


def could_be_id(id: object) -> bool:
    """Return whether a subscription may have this id; some databases refuse to look up others."""
    try:
        check_id(id)
    except StoreError:
        return False
    return True


def check_namespaces(namespaces: Mapping[str, str]) -> None:
    """Raise StoreError for a prefix that is no XML name, or an empty namespace."""
    for prefix, uri in namespaces.items():
        if prefix == ANY_PREFIX:
            continue
        check_text(prefix, "a prefix")
        check_text(uri, f"the namespace of {prefix!r}")
        if not _NAME.fullmatch(prefix) or name_length(prefix) < len(prefix):
            raise StoreError(f"{prefix!r} cannot be a prefix")
        if prefix in _XML:
            raise StoreError(f"the prefix {prefix!r} is XML's own and cannot be declared")
        if not uri:
            raise StoreError(f"the namespace of {prefix!r} must not be empty")
