"""Sphinx configuration of the documentation. `bash deploy/docs.sh` builds it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from canal_ha.version import VERSION
from docs.generate import PAGES

project = "canal-ha"
author = "the canal-ha developers"
version = release = VERSION

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build", "pictures/README.md"]
nitpicky = True

myst_enable_extensions = ["attrs_inline", "colon_fence"]
myst_heading_anchors = 4

html_theme = "furo"
html_title = f"canal-ha {VERSION}"
html_extra_path = ["pictures"]
html_show_sphinx = False
html_copy_source = False

_GENERATED = re.compile(r"<!-- generated: (?P<name>[a-z ]+) -->")
_ANCHOR_BEFORE_HEADING = re.compile(r'^<a id="(?P<id>[\w-]+)"></a>\n(?=#)', re.MULTILINE)
_ANCHOR = re.compile(r'<a id="(?P<id>[\w-]+)"></a>')


def prepare(app: Any, page: str, source: list[str]) -> None:
    """Fill in the generated parts of a page, and turn the anchors that GitHub reads into MyST's.

    source: the text, in a list of one, as Sphinx hands it to `source-read`.
    Raises KeyError for a part that nobody generates.
    """
    text = _GENERATED.sub(lambda match: PAGES[match["name"]](), source[0])
    text = _ANCHOR_BEFORE_HEADING.sub(r"(\g<id>)=\n", text)
    source[0] = _ANCHOR.sub(r"[]{#\g<id>}", text)


def setup(app: Any) -> dict[str, bool]:
    """Connect the hook above."""
    app.connect("source-read", prepare)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
