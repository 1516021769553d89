"""Rules for imports and class names, checked in the source."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import canal_ha
from canal_ha import errors

PACKAGE = Path(canal_ha.__file__).parent
ROOT = PACKAGE.parent


@cache
def names_in(module: Path) -> tuple[frozenset[str], tuple[tuple[str, frozenset[str]], ...]]:
    """Return the top-level packages that a module imports anywhere; its classes, with the last names of their bases."""
    packages: set[str] = set()
    classes = []
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            packages |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            packages.add(node.module.partition(".")[0])
        elif isinstance(node, ast.ClassDef):
            classes.append((node.name, frozenset(ast.unparse(base).rpartition(".")[2] for base in node.bases)))
    return frozenset(packages), tuple(classes)


def imports(module: Path) -> frozenset[str]:
    """Return the names of the top-level packages that a module imports anywhere."""
    return names_in(module)[0]


def test_three_modules_import_kazoo() -> None:
    """Only zookeeper/port.py, zookeeper/reading.py and the handler of the port import kazoo; others use the two."""
    importers = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if "kazoo" in imports(path)}
    assert importers == {"zookeeper/port.py", "zookeeper/reading.py", "zookeeper/few_calls.py"}


def test_the_port_needs_no_reactor() -> None:
    """zookeeper/port.py does not import twisted; its owner passes a function that calls the owner's thread."""
    assert "twisted" not in imports(PACKAGE / "zookeeper" / "port.py")


def test_a_class_name_exists_once_in_the_package() -> None:
    """No two classes have the same name, so that a name in a log or a traceback leads to one place."""
    places: dict[str, list[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        if path.stem.endswith("_pb2"):
            continue  # protoc names these
        for name, _ in names_in(path)[1]:
            places.setdefault(name, []).append(str(path.relative_to(PACKAGE)))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_errors_are_in_one_module() -> None:
    """Every subclass of our errors is in canal_ha.errors, where callers and the reference find it."""
    known = {name for name, value in vars(errors).items() if isinstance(value, type)}
    elsewhere = {
        f"{path.relative_to(PACKAGE)}: {name}"
        for path in PACKAGE.rglob("*.py")
        if path.name != "errors.py"
        for name, bases in names_in(path)[1]
        if bases & known
    }
    assert elsewhere == set()


def test_files_have_the_nouns_of_the_field() -> None:
    """No module has one of the former names, which are not words of MySQL, ZooKeeper or Kafka."""
    former = {"torn", "ending", "whereabouts", "chronicle", "trail", "walking", "bell", "told", "plainly", "local_dump"}
    assert {path.stem for path in PACKAGE.rglob("*.py")} & former == set()


def test_a_node_that_serves_clients_imports_no_library_of_pipelines() -> None:
    """They are extras, and take memory and time at the start."""
    program = "import sys, canal_ha.node.node; print([each for each in sys.argv[1:] if each in sys.modules])"
    command = [sys.executable, "-c", program, "pyarrow", "confluent_kafka", "yaml", "jsonschema"]
    assert subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout == "[]\n"


def test_the_fuzzers_have_what_they_import() -> None:
    """fuzz.sh copies every folder that the modules of tests/decode import."""
    script = (ROOT / "deploy" / "fuzz.sh").read_text()
    [copied] = re.findall(r"^cp -r (.*) ", script, re.MULTILINE)
    ours = {path.name for path in ROOT.iterdir() if path.is_dir()}
    for module in (ROOT / "tests" / "decode").glob("*.py"):
        assert imports(module) & ours <= set(copied.split()), module


@pytest.mark.parametrize("folder", ["lab", "bench", "deploy", "docs", "canal_ha"])
def test_only_tests_import_tests(folder: str) -> None:
    """No other folder imports tests; the code that they share with tests is in lab/."""
    importers = [str(path) for path in (ROOT / folder).rglob("*.py") if "tests" in imports(path)]
    assert importers == []


def test_no_product_module_imports_the_lab() -> None:
    """The package imports nothing from lab, bench or deploy, so that it works without the repository."""
    assert [str(path) for path in PACKAGE.rglob("*.py") if imports(path) & {"lab", "bench", "deploy"}] == []
