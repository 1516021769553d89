"""Adds compiled modules to the archives from which Spark's Python processes import PySpark.

    python -m canal_ha.spark.compiled_archive

Spark puts `pyspark.zip` and py4j's archive first into the path of each Python process that it starts. Python keeps no
compiled copy of a module in an archive. So each of these processes compiles PySpark again, which takes half a second
of processor time.

Python prefers `name.pyc` to `name.py` in an archive (zipimport). The compiled files are valid without a check of their
source's time (PEP 552), because an archive is replaced as a whole. Another version of Python compiles the sources, as
before. What the archive held stays at its place, so Python processes that use it meanwhile go on.
"""

from __future__ import annotations

import compileall
import os
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Sequence
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from py_compile import PycInvalidationMode
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile

import pyspark

LIBRARIES = Path("python", "lib")  # below SPARK_HOME, or below the installed package
TESTS = re.compile("/tests/")  # PySpark's own, half of the archive


def add_compiled(archive: Path) -> int:
    """Add compiled modules to an archive of Python modules, and return how many; 0 if it has them already.

    archive: the file; it is replaced at once.
    Raises ValueError if its compiled modules are another Python's, and OSError.
    """
    with ZipFile(archive) as old, tempfile.TemporaryDirectory() as directory:
        compiled = [name for name in old.namelist() if name.endswith(".pyc")]
        if compiled:
            if all(old.read(name).startswith(MAGIC_NUMBER) for name in compiled):
                return 0
            raise ValueError(f"{archive} has compiled modules of another Python: install PySpark again")
        old.extractall(directory, [name for name in old.namelist() if name.endswith(".py")])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the compiler, about PySpark's own tests
            compileall.compile_dir(
                directory,
                stripdir=directory,
                prependdir=str(archive),
                quiet=2,
                rx=TESTS,
                legacy=True,
                invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
            )
        made = sorted(Path(directory).rglob("*.pyc"))
        replacement = archive.with_name(f".{archive.name}.{os.getpid()}")
        try:
            shutil.copy(archive, replacement)
            with ZipFile(replacement, "a", ZIP_DEFLATED) as new:
                for file in made:
                    new.write(file, file.relative_to(directory))
            replacement.replace(archive)
        finally:
            replacement.unlink(missing_ok=True)
    return len(made)


def main(arguments: Sequence[str]) -> int:
    """Compile the archives of the Spark that this Python uses; return the exit code."""
    if arguments:
        sys.stderr.write("usage: python -m canal_ha.spark.compiled_archive\n")
        return 2
    libraries = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent) / LIBRARIES
    archives = sorted(libraries.glob("*.zip"))
    if not archives:
        sys.stderr.write(f"{libraries} has no archives: set SPARK_HOME to the directory of Spark\n")
        return 1
    for archive in archives:
        try:
            count = add_compiled(archive)
        except (OSError, ValueError, BadZipFile) as error:
            sys.stderr.write(f"{archive}: {error}\n")
            return 1
        done = f"{count} compiled modules added" if count else "compiled already"
        sys.stdout.write(f"{archive}: {done}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
