"""The archive from which Spark's Python processes import PySpark gets compiled modules."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pyspark
import pytest

from canal_ha.spark.compiled_archive import LIBRARIES, add_compiled, main

MODULE = "pyspark.sql.streaming.python_streaming_source_runner"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a directory with the archives of the installed PySpark, as they come: it may have been compiled."""
    (tmp_path / LIBRARIES).mkdir(parents=True)
    for archive in (Path(pyspark.__file__).parent / LIBRARIES).glob("*.zip"):
        with ZipFile(archive) as old, ZipFile(tmp_path / LIBRARIES / archive.name, "w") as new:
            for name in old.namelist():
                if not name.endswith(".pyc"):
                    new.writestr(name, old.read(name))
    return tmp_path


def imported(home: Path) -> str:
    """Import a module as Spark's Python processes do; return the file that it comes from."""
    paths = os.pathsep.join(map(str, sorted((home / LIBRARIES).glob("*.zip"))))
    program = f"import {MODULE} as module; print(module.__file__)"
    environment = {**os.environ, "PYTHONPATH": paths}
    return subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_python_imports_compiled_modules(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The archives are compiled once, and Python takes the compiled module."""
    assert imported(home).strip().endswith("pyspark.zip/" + MODULE.replace(".", "/") + ".py")
    monkeypatch.setenv("SPARK_HOME", str(home))
    assert main([]) == 0
    assert capsys.readouterr().out.count(" compiled modules added\n") == 2
    assert imported(home).strip().endswith(".pyc")
    assert main([]) == 0
    assert capsys.readouterr().out.count(": compiled already\n") == 2


def test_a_process_that_uses_the_archive_goes_on(tmp_path: Path) -> None:
    """What was in the archive stays at its place, which Python remembers from the first import."""
    archive = tmp_path / "some.zip"
    with ZipFile(archive, "w") as made:
        made.writestr("first.py", "")
        made.writestr("second.py", "value = 1\n" * 1000)
    program = "import sys, first; print(flush=True); sys.stdin.readline(); import second; print(second.value)"
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(archive)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        running.stdout.readline()
        assert add_compiled(archive) == 2
        assert running.communicate("\n")[0] == "1\n"


def test_compiled_modules_of_another_python(tmp_path: Path) -> None:
    """They are not mixed."""
    archive = tmp_path / "some.zip"
    with ZipFile(archive, "w") as made:
        made.writestr("first.py", "")
        made.writestr("first.pyc", b"\0" * 16)
    with pytest.raises(ValueError, match=r"some\.zip has compiled modules of another Python: install PySpark again"):
        add_compiled(archive)


def test_no_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The message names the directory, and what to set."""
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert main([]) == 1
    assert f"{tmp_path / LIBRARIES} has no archives: set SPARK_HOME" in capsys.readouterr().err
