"""Gives the tree of another commit its compiled kernel: from a cache where it can, else from the compiler.

A module's key is a hash of its source, of the headers that it reads, of setup.py and of what compiles them. Between two
commits most modules keep their key, so few are compiled.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import version
from pathlib import Path

KERNEL = Path("canal_ha/decode/kernel")
SUFFIX = EXTENSION_SUFFIXES[0]
DAYS = 30  # after which the cache forgets what no run used

# setup.py of the other commit, with the modules that are named
BUILD = """
import sys
from distutils.core import run_setup
import setuptools
made = run_setup("setup.py", ["--quiet", "build_ext", "--inplace"], stop_after="commandline")
made.ext_modules = [one for one in made.ext_modules if one.name.rpartition(".")[2] in sys.argv[1:]]
made.run_commands()
"""
# a header's other headers: `cimport canal_ha.decode.kernel.cells as c`, `cdef extern from "texts.h"`
READ = re.compile(rb"""cimport canal_ha\.decode\.kernel\.(\w+)|kernel\.(\w+) cimport|extern from "(\w+\.h)\"""")
# the compiled modules that decoding imports, and those that it does not
NAMES = """
import json, sys
import lab.dump
from canal_ha.decode import kernel
used = [name for name in kernel.HOT if f"{kernel.__name__}.{name}" in sys.modules]
print(json.dumps([used, [name for name in kernel.HOT if name not in used]]))
"""


class NotBuilt(Exception):
    """The kernel of a tree cannot be compiled; the message has the end of the compiler's output."""


def key(tree: Path, module: str) -> str:
    """Return what changes whenever the compiled module could."""
    kernel = tree / KERNEL
    parts = [kernel / f"{module}.py", *sorted(_headers(kernel, f"{module}.pxd")), tree / "setup.py"]
    found = hashlib.sha256(f"{sys.version} {version('Cython')} {os.environ.get('CANAL_HA_CFLAGS')}".encode())
    for part in parts:
        found.update(b"%s %d\n" % (part.name.encode(), part.stat().st_size) + part.read_bytes())
    return found.hexdigest()[:32]


def _headers(kernel: Path, first: str) -> set[Path]:
    """Return a header, and all that it reads, also indirectly."""
    found: set[Path] = set()
    waiting = {kernel / first}
    while waiting:
        header = waiting.pop()
        if header.exists() and header not in found:
            found.add(header)
            for whole, part, c_header in READ.findall(header.read_bytes()):
                waiting.add(kernel / (c_header.decode() or f"{(whole or part).decode()}.pxd"))
    return found


def older_than_sources(tree: Path) -> list[str]:
    """Return the compiled modules of a tree that are missing, or older than their source or a header."""
    kernel = tree / KERNEL
    old = []
    for module in names(tree)[0]:
        compiled = kernel / f"{module}{SUFFIX}"
        sources = [kernel / f"{module}.py", *_headers(kernel, f"{module}.pxd")]
        if not compiled.exists() or compiled.stat().st_mtime < max(source.stat().st_mtime for source in sources):
            old.append(module)
    return old


def keep(tree: Path, kept_in: Path) -> None:
    """Copy the compiled modules of a tree into the cache, for a later commit; forget old ones."""
    kept_in.mkdir(parents=True, exist_ok=True)
    for module in names(tree)[0]:
        _store(tree / KERNEL / f"{module}{SUFFIX}", kept_in / key(tree, module))
    for file in kept_in.iterdir():
        if file.stat().st_mtime < time.time() - DAYS * 86_400:
            file.unlink()


def provide(tree: Path, kept_in: Path, timeout_s: float) -> list[str]:
    """Put the compiled modules that decode into a tree, and return which of them were compiled now.

    The other modules become empty files, because without all files the kernel runs interpreted.
    Raises NotBuilt, also after timeout_s; what was compiled until then is lost.
    """
    used, unused = names(tree)
    missing = []
    for module in used:
        kept = kept_in / key(tree, module)
        if kept.exists():
            kept.touch()
            shutil.copy(kept, tree / KERNEL / f"{module}{SUFFIX}")
        else:
            missing.append(module)
    if missing:
        _compile(tree, missing, timeout_s)
    for module in missing:
        _store(tree / KERNEL / f"{module}{SUFFIX}", kept_in / key(tree, module))
    for module in unused:
        (tree / KERNEL / f"{module}{SUFFIX}").touch()
    return missing


@cache
def names(tree: Path) -> tuple[list[str], list[str]]:
    """Return the compiled modules that decoding imports, and the others. Raises NotBuilt if it cannot be imported."""
    told = subprocess.run(
        [sys.executable, "-P", "-c", NAMES],
        env={**os.environ, "PYTHONPATH": str(tree), "CANAL_HA_KERNEL": "off"},
        capture_output=True,
        text=True,
    )
    if told.returncode:
        raise NotBuilt(f"{tree}: its kernel cannot be imported: {told.stderr[-500:]}")
    used, unused = json.loads(told.stdout)
    return used, unused


def _compile(tree: Path, modules: list[str], timeout_s: float) -> None:
    try:
        done = subprocess.run(
            [sys.executable, "-c", BUILD, *modules],
            cwd=tree,
            env={**os.environ, "CANAL_HA_KERNEL": "require"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired as error:
        raise NotBuilt(f"the compiler needs more than {timeout_s:.0f} s for {', '.join(modules)}") from error
    if done.returncode:
        raise NotBuilt(done.stdout[-500:])


def _store(compiled: Path, kept: Path) -> None:
    """Copy a module, so that another run sees all of it or nothing."""
    if kept.exists():
        kept.touch()
        return
    kept.parent.mkdir(parents=True, exist_ok=True)
    half = kept.with_name(f"{kept.name}.{os.getpid()}")
    shutil.copy(compiled, half)
    half.rename(kept)
