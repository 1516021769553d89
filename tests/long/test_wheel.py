"""A wheel for this machine: compiled, installed into an empty virtual environment, and used outside the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.checkout import ROOT, copy_to

pytestmark = pytest.mark.long

SDIST = "import sys; from setuptools.build_meta import build_sdist; print(build_sdist(sys.argv[1]))"


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command that sees nothing of this checkout; return its output."""
    environment = {key: text for key, text in os.environ.items() if key != "PYTHONPATH"}
    environment["CANAL_HA_KERNEL"] = "require"
    done = subprocess.run([*map(str, command)], cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_wheel_works_in_an_empty_environment(tmp_path: Path) -> None:
    """It is built from the source distribution, with the locked packages. Kernel, data, page and command work."""
    source = copy_to(tmp_path / "src")
    archive = tmp_path / run(sys.executable, "-c", SDIST, tmp_path, cwd=source).splitlines()[-1]
    out = tmp_path / "out"
    pip = ("-m", "pip", "--disable-pip-version-check")
    run(sys.executable, *pip, "wheel", "--no-deps", "--no-build-isolation", "-w", out, archive, cwd=tmp_path)
    (wheel,) = out.iterdir()
    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    run(python, *pip, "install", "--require-hashes", "-r", ROOT / "deploy/locks/runtime.txt", cwd=tmp_path)
    run(python, *pip, "install", "--no-deps", "--no-index", wheel, cwd=tmp_path)
    assert "No broken requirements" in run(python, *pip, "check", cwd=tmp_path)
    assert "compiled kernel, data and page work" in run(python, ROOT / "deploy/installed.py", cwd=tmp_path)


def test_cibuildwheel_accepts_the_recipe(tmp_path: Path) -> None:
    """Its own options parser reads pyproject.toml and names the wheels. Building them needs Docker."""
    tools = run("bash", "deploy/tools.sh", cwd=ROOT).strip()
    program = Path(tools) / "cibuildwheel"
    named = run(program, "--platform", "linux", "--archs", "x86_64", "--print-build-identifiers", ROOT, cwd=tmp_path)
    assert {"cp311-manylinux_x86_64", "cp312-manylinux_x86_64", "cp313-manylinux_x86_64"} <= set(named.split())
