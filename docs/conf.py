"""Sphinx configuration of the documentation. `bash deploy/docs.sh` builds it."""

from __future__ import annotations

import os.path
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # for the imports below

from canal_ha.version import VERSION
from docs.generate import PAGES

project = "canal-ha"
author = "the canal-ha developers"
version = release = VERSION

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
nitpicky = True
smartquotes = False  # options begin with two hyphens

myst_enable_extensions = ["attrs_inline", "colon_fence"]
myst_heading_anchors = 4

html_theme = "furo"
html_title = f"canal-ha {VERSION}"
html_show_sphinx = False
html_copy_source = False

ROOT = Path(__file__).parents[1]
INCLUDED = {
    "ARCHITECTURE.md": "explanation/architecture.md",
    "CHANGELOG.md": "reference/changelog.md",
    "bench/README.md": "explanation/benchmarks.md",
    "zk/README.md": "reference/zookeeper.md",
}
"""Files outside of docs/ -> the page that includes them. A link to the file leads to that page on the site."""

_OUTSIDE = re.compile(r"\]\((?P<path>(?:\.\./)+[\w./-]+\.md)(?=[)#])")
_GENERATED = re.compile(r"<!-- generated: (?P<name>[a-z ]+) -->")
_ANCHOR_BEFORE_HEADING = re.compile(r'^<a id="(?P<id>[\w-]+)"></a>\n(?=#)', re.MULTILINE)
_ANCHOR = re.compile(r'<a id="(?P<id>[\w-]+)"></a>')


def prepare(app: Any, page: str, source: list[str]) -> None:
    """Fill in the generated parts of a page, and turn the anchors that GitHub reads into MyST's.

    source: the text, in a list of one, as Sphinx hands it to `source-read`.
    Raises KeyError for a part that nobody generates.
    """
    text = _GENERATED.sub(lambda match: PAGES[match["name"]](), source[0])
    text = _OUTSIDE.sub(lambda match: "](" + _on_site(page, match["path"]), text)
    text = _ANCHOR_BEFORE_HEADING.sub(r"(\g<id>)=\n", text)
    source[0] = _ANCHOR.sub(r"[]{#\g<id>}", text)


def _on_site(page: str, path: str) -> str:
    """Return a link as it has to be on the site. page: without suffix, below docs/; path: relative to it."""
    here = (ROOT / "docs" / page).parent
    file = os.path.relpath(os.path.normpath(here / path), ROOT)
    return os.path.relpath(ROOT / "docs" / INCLUDED[file], here) if file in INCLUDED else path


def setup(app: Any) -> dict[str, bool]:
    """Connect the hook above."""
    app.connect("source-read", prepare)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
