"""Links to files lead to files, and pictures are shown. Sphinx checks the links among pages of docs/."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
PICTURES = sorted((ROOT / "docs/pictures").glob("*.svg"))
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "zk/README.md", ROOT / "bench/README.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_to_a_file_leads_to_one(page: Path) -> None:
    """Each relative link of a page leads to a file of the repository."""
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.stem)
def test_every_picture_is_shown_and_has_a_dark_form(picture: Path) -> None:
    """A picture has text, a title for readers who cannot see it, a dark form, and a page that shows it."""
    tree = ElementTree.fromstring(picture.read_text(encoding="utf-8"))
    svg = "{http://www.w3.org/2000/svg}"
    assert tree.findtext(f"{svg}title")
    assert len(tree.findall(f"{svg}text")) > 5
    assert "prefers-color-scheme: dark" in (tree.findtext(f"{svg}style") or "")
    assert any(f"pictures/{picture.name})" in page.read_text(encoding="utf-8") for page in PAGES)
