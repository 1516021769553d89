"""Who may import what, read from the source itself."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import canal_ha

PACKAGE = Path(canal_ha.__file__).parent
ROOT = PACKAGE.parent


def imports(module: Path) -> set[str]:
    """Names of the top-level packages that a module imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def test_two_modules_import_kazoo() -> None:
    """The live port and the blocking reader; whoever else needs ZooKeeper asks one of them."""
    importers = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if "kazoo" in imports(path)}
    assert importers == {"zookeeper/port.py", "zookeeper/reading.py"}


def test_the_port_needs_no_reactor() -> None:
    """Its owner hands in how a call reaches the owner's thread."""
    assert "twisted" not in imports(PACKAGE / "zookeeper" / "port.py")


def test_a_class_name_exists_once_in_the_package() -> None:
    """Also across rooms: a name in a log, a traceback or a search leads to one place."""
    places: dict[str, list[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        if path.stem.endswith("_pb2"):
            continue  # protoc names these
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


@pytest.mark.parametrize("folder", ["lab", "bench", "deploy", "docs", "canal_ha"])
def test_only_tests_import_tests(folder: str) -> None:
    """What they share with tests is in lab/."""
    importers = [str(path) for path in (ROOT / folder).rglob("*.py") if "tests" in imports(path)]
    assert importers == []


def test_no_product_module_imports_the_lab() -> None:
    """The package is complete without the repository around it."""
    assert [str(path) for path in PACKAGE.rglob("*.py") if imports(path) & {"lab", "bench", "deploy"}] == []
