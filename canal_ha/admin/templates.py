"""Templates: the HTML of the page, and the files beside it, read once from the package."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined

from canal_ha.model.figures import duration, size
from canal_ha.version import VERSION

CONTENT_TYPES = {
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
}


def static(name: str) -> tuple[bytes, bytes] | None:
    """Return the content type and the bytes of a file; None if the page has no such file."""
    return _files().get(name)


@cache
def _files() -> Mapping[str, tuple[bytes, bytes]]:
    """Return the content type and the bytes of every file of the page, by name."""
    found = (files("canal_ha.admin") / "static").iterdir()
    kinds = ((each, CONTENT_TYPES.get(each.name[each.name.rfind(".") :])) for each in found)
    return {each.name: (kind, each.read_bytes()) for each, kind in kinds if kind}


def render(template: str, **given: Any) -> bytes:
    """Return a page. given: the names that the template uses."""
    text: str = _environment().get_template(template).render(given)
    return text.encode(errors="backslashreplace")


def link(destination: str) -> str:
    """Return the path of the page of a destination."""
    return f"/destinations/{quote(destination, safe='')}"


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("canal_ha.admin"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(duration=duration, size=size, link=link, moment=moment_text)
    made.globals.update(file=_file, version=VERSION)
    return made


@cache
def _file(name: str) -> str:
    """Return the address of a file; it changes with the content, so that browsers may keep the file."""
    found = static(name)
    assert found, name
    return f"/static/{name}?{sha256(found[1]).hexdigest()[:12]}"


def moment_text(text: str) -> str:
    """Format a moment of a document for a person; return a text that is no moment unchanged."""
    try:
        return f"{datetime.fromisoformat(text):%Y-%m-%d %H:%M:%S} UTC"
    except ValueError:
        return text
