"""The anchors of docs/protocol.md that texts cite, and the targets of links between documents, exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROTOCOL = ROOT / "docs" / "protocol.md"
CITING = ("canal_ha", "tests", "lab", "bench", "deploy", "conf", "docs", "zk")
DOCUMENTS = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *ROOT.glob("*/README.md")})

CITATION = re.compile(r"protocol\.md#([\w-]+)")
ABSENT = re.compile(  # documents that are not part of the project
    r"\bspecification\b|spec [0-9]|trap [0-9]|design\.md|\bdesign:|\(design|console-and-logs|\([0-9]+\.[0-9]+ step",
    re.IGNORECASE,
)
LINK = re.compile(r"\]\(([^)\s]+)\)")
EXPLICIT_ANCHOR = re.compile(r'<a id="([^"]+)"></a>')
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def texts() -> Iterator[tuple[Path, str]]:
    """Yield the path and text of each file that may cite, except this one."""
    files = [path for folder in CITING for path in sorted((ROOT / folder).rglob("*"))]
    for path in [*files, *sorted(path for path in ROOT.iterdir() if not path.name.startswith("."))]:
        if not path.is_file() or path == Path(__file__) or {"__pycache__", "_build"} & {*path.parts}:
            continue
        try:
            yield path, path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


def anchors(document: Path) -> set[str]:
    """Return the anchors of a document: explicit ones, and headings as GitHub spells them."""
    text = FENCED.sub("", document.read_text(encoding="utf-8"))
    found = set(EXPLICIT_ANCHOR.findall(text))
    for heading in HEADING.findall(text):
        found.add(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-"))
    return found


def test_every_citation_names_an_anchor() -> None:
    """docs/protocol.md has each section that the code, the tests and the configuration cite."""
    known = set(EXPLICIT_ANCHOR.findall(PROTOCOL.read_text(encoding="utf-8")))
    cited = [(path, anchor) for path, text in texts() for anchor in CITATION.findall(text)]
    assert len(cited) > 40
    assert [f"{path.relative_to(ROOT)}: #{anchor}" for path, anchor in cited if anchor not in known] == []


def test_no_citation_of_an_absent_document() -> None:
    """No file cites a document that is not part of the project."""
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path, text in texts()
        for number, line in enumerate(text.splitlines(), 1)
        if ABSENT.search(line)
    ]
    assert found == []


def test_no_anchor_twice() -> None:
    """docs/protocol.md defines no anchor twice."""
    found = EXPLICIT_ANCHOR.findall(PROTOCOL.read_text(encoding="utf-8"))
    assert sorted(found) == sorted(set(found))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(document: Path) -> None:
    """A link inside the project names a file that exists and, after #, an anchor of it."""
    broken = []
    for link in LINK.findall(document.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", link):  # another site
            continue
        name, _, anchor = link.partition("#")
        target = (document.parent / name).resolve() if name else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []
