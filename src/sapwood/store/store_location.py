"""The location of a store: a URL, or the path of an SQLite file; shown without passwords."""

from __future__ import annotations

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from sapwood.errors import StoreError

_DRIVERS = {
    "sqlite": "sqlite",
    "sqlite+pysqlite": "sqlite",
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
}
_FORMS = "a store is a path, sqlite:///PATH, or postgresql://USER@HOST/DATABASE"
_SECRET = "password"


def locate(text: str) -> URL:
    """Parse a location into a URL with its driver; raises StoreError."""
    if "\0" in text:
        raise StoreError(f"the character NUL cannot be part of it: {_FORMS}")
    scheme, slashes, _ = text.partition("://")
    if not slashes:
        return _file(text)
    driver = _DRIVERS.get(scheme)
    if driver is None:
        raise StoreError(f"no store can be kept at {scheme}://; {_FORMS}")
    try:
        url = make_url(text).set(drivername=driver)
    except (ArgumentError, ValueError):  # which might quote a password
        raise StoreError(f"this {scheme}:// URL is malformed; {_FORMS}") from None
    if driver == "sqlite":
        if url.host:
            raise StoreError(f"an SQLite URL has three slashes, and four before an absolute path; {_FORMS}")
        if url.query:
            raise StoreError(f"an SQLite URL takes no options; {_FORMS}")
        return _file(url.database or "")
    return url


def _file(path: str) -> URL:
    if path.partition(":")[0] in _DRIVERS:
        raise StoreError(f"{path.partition(':')[0]}: lacks its slashes; {_FORMS}")
    if not path or path.startswith((":memory:", "file:")):
        raise StoreError(f"a store needs a file, so that others can read it; {_FORMS}")
    return URL.create("sqlite", database=path)


def mask_password(url: URL) -> str:
    """Format a URL for output: without driver and password, a plain path for a file."""
    if url.drivername == "sqlite":
        return str(url.database)
    secrets = [name for name in url.query if _SECRET in name.lower()]
    bare = url.difference_update_query(secrets).set(drivername="postgresql")
    return bare.render_as_string(hide_password=True)
