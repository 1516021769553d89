"""Who may talk to ZooKeeper: the rule that lint-imports holds, read from the source itself."""

from __future__ import annotations

import ast
from pathlib import Path

import canal_ha

PACKAGE = Path(canal_ha.__file__).parent


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
