"""What an installation without extras can do: everything but pipelines, Spark and Arrow."""

from __future__ import annotations

import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

from canal_ha.cli.main import COMMANDS

ROOT = Path(__file__).parent.parent
_NAMED = {"PyYAML": "yaml", "pure-sasl": "puresasl", "confluent-kafka": "confluent_kafka"}  # otherwise as the package
_NEED_EXTRAS = (
    "canal_ha.pipeline",
    "canal_ha.spark",
    "canal_ha.client.arrow",
    "canal_ha.node.queue_flow",
)

_WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
"""
_IMPORTS = """
import canal_ha, importlib, pkgutil

def walk(path, prefix):
    for module in pkgutil.iter_modules(path, prefix):
        if module.name.startswith({apart}) or module.name.endswith("__main__"):
            continue
        try:
            made = importlib.import_module(module.name)
        except ImportError as error:
            print(module.name, error)
            continue
        if module.ispkg:
            walk(made.__path__, module.name + ".")

walk(canal_ha.__path__, "canal_ha.")
"""
_COMMAND = "from canal_ha.cli.main import main; sys.argv[0] = 'canal-ha'; sys.exit(main())"
_HELP = """
from canal_ha.cli.main import group

for command in sys.argv[1:]:
    for name in [name for name in sys.modules if name.startswith("canal_ha.") and name != "canal_ha.cli.main"]:
        del sys.modules[name]  # each command imports what it needs by itself
    try:
        code = group([command, "--help"], prog_name="canal-ha", standalone_mode=False)
    except Exception as error:
        code = repr(error)
    print(f"\\n{command} ended: {code}")
"""


def extras() -> set[str]:
    """Return the modules that only the extras `arrow`, `sasl`, `spark` and `pipeline` install."""
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    given = setup["options.extras_require"]
    lines = [line for name in ("arrow", "sasl", "spark", "pipeline") for line in given[name].split("\n") if line]
    packages = {line.split(">")[0].split("<")[0].split("[")[0].strip() for line in lines}
    return {_NAMED.get(package, package) for package in packages} | {"numpy"}  # with pandas and others


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program without the packages of extras."""
    text = _WITHOUT.format(missing=sorted(extras())) + program
    command = [sys.executable, "-c", text, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)


def test_all_other_modules_can_be_imported() -> None:
    """One import of a package of pipelines kept `canal-ha client` from starting."""
    assert {"pyarrow", "pyspark", "jsonschema", "yaml", "psycopg"} <= extras()
    done = run(_IMPORTS.format(apart=_NEED_EXTRAS))
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_every_command_shows_its_help() -> None:
    """Each one starts without the extras. They share a process, because other packages take most of the time."""
    done = run(_HELP, *sorted(COMMANDS))
    assert (done.returncode, done.stderr) == (0, "")
    for command in COMMANDS:
        assert f"Usage: canal-ha {command} " in done.stdout
        assert f"\n{command} ended: 0\n" in done.stdout


def test_the_command_of_pipelines_says_what_to_install() -> None:
    """Not with a traceback."""
    for file, extra in (("shop.yaml", "pipeline"), ("shop.toml", "spark")):
        done = run(_COMMAND, "pipeline", "check", file)
        assert done.returncode == 1
        assert f"pip install 'canal-ha[{extra}]'" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_status_without_the_packages_spoke_of_a_mistake_in_the_file() -> None:
    """It added that a pipeline that runs goes on with the file as it was before."""
    done = run(_COMMAND, "pipeline", "status", "shop.yaml")
    assert "pip install 'canal-ha[pipeline]'" in done.stderr
    assert "goes on" not in done.stderr
