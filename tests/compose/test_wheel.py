"""What a wheel has. tests/long/test_wheel.py compiles and installs one."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from deploy.checkout import ROOT, copy_to, own_files

pytestmark = pytest.mark.real


def test_a_wheel_has_every_file_of_the_package(tmp_path: Path) -> None:
    """Page templates, static files, schemas and type stubs are in it; tests, tools and configurations are not."""
    environment = {key: text for key, text in os.environ.items() if key != "PYTHONPATH"} | {"CANAL_HA_KERNEL": "off"}
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", str(tmp_path / "out")]
    done = subprocess.run([*command, str(copy_to(tmp_path / "src"))], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = (tmp_path / "out").iterdir()
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    registration = "canal_ha/spark/registration/"  # it is installed as a top-level package
    wanted = {name.removeprefix(registration) for name in own_files() if name.startswith("canal_ha/")}
    assert wanted - packed == {"canal_ha/wire/proto/generate.sh"}
    assert packed - wanted == set()


def test_the_recipe_builds_for_the_pythons_that_the_package_allows() -> None:
    """cibuildwheel fails without a compiled kernel, and checks each wheel as the long suites do."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        recipe = tomllib.load(file)["tool"]["cibuildwheel"]
    assert recipe["environment"]["CANAL_HA_KERNEL"] == "require"
    assert recipe["build"].split()[0] == "cp311-manylinux*"
    assert (ROOT / recipe["test-command"].removeprefix("python {project}/")).is_file()
