"""CANAL_HA_KERNEL chooses between the interpreted and the compiled kernel."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SHOW = "from canal_ha.decode.kernel import BUILD, stream; print(BUILD, stream.__file__)"


def build(wanted: str) -> tuple[str, str]:
    """Return (BUILD, file of the stream module), or an empty text and the standard error of a failure."""
    done = subprocess.run(
        [sys.executable, "-c", SHOW],
        env={**os.environ, "CANAL_HA_KERNEL": wanted},
        capture_output=True,
        text=True,
        check=False,
    )
    return (*done.stdout.split(),) if done.returncode == 0 else ("", done.stderr)  # type: ignore[return-value] # two words


def test_off_never_takes_the_compiled_modules() -> None:
    """`off` runs the source modules even if compiled ones exist."""
    name, file = build("off")
    assert name == "interpreted"
    assert file.endswith("stream.py")


def test_require_fails_without_them() -> None:
    """`require` runs the compiled modules, or fails and names the missing ones."""
    name, said = build("require")
    if build("auto")[0] == "compiled":
        assert name == "compiled"
        assert not said.endswith(".py")
    else:
        assert "are not compiled: " in said


@pytest.mark.parametrize("wanted", ["auto", "nonsense"])
def test_other_values(wanted: str) -> None:
    """`auto` runs the kernel that exists; an unknown value is refused."""
    name, said = build(wanted)
    if wanted == "auto":
        assert name in ("interpreted", "compiled")
    else:
        assert "expected auto, require or off" in said
