"""The page that describes the API, made from the OpenAPI document without anything of another host."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from fastapi import APIRouter, Response

router = APIRouter(include_in_schema=False)
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}


@cache
def _read(name: str) -> bytes:
    return (files("sapwood.serve.api") / "docs_page" / name).read_bytes()


@router.get("/docs")
async def docs() -> Response:
    """Return the page."""
    return Response(_read("docs.html"), media_type="text/html", headers=_HEADERS)


@router.get("/docs/docs.css")
async def docs_style() -> Response:
    """Return its style."""
    return Response(_read("docs.css"), media_type="text/css", headers=_HEADERS)


@router.get("/docs/docs.js")
async def docs_script() -> Response:
    """Return its script."""
    return Response(_read("docs.js"), media_type="text/javascript", headers=_HEADERS)
