"""Files and directories that only their user can read, whatever the umask."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from canal_ha.private_files import make_directory, opener, tighten


@pytest.fixture(params=[0, 0o022, 0o077], autouse=True)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """Run a test with each umask."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    """Return a path's mode."""
    return stat.S_IMODE(path.stat().st_mode)


def write(path: Path) -> None:
    """Write a file."""
    with open(path, "w", opener=opener) as file:
        file.write("x")


def test_new_files_and_directories_are_their_users_alone(tmp_path: Path) -> None:
    """Parents that are missing are created alike."""
    make_directory(tmp_path / "a" / "b")
    write(tmp_path / "a" / "b" / "file")
    assert [mode(path) for path in sorted(tmp_path.rglob("*"))] == [0o700, 0o700, 0o600]
    make_directory(tmp_path / "a" / "b")


def test_what_others_could_read_is_taken_away_from_them(tmp_path: Path) -> None:
    """A file that was stricter stays so, and a directory that somebody else made keeps its mode."""
    tmp_path.chmod(0o755)
    for before, after in ((0o644, 0o600), (0o666, 0o600), (0o400, 0o400)):
        for change in (write, tighten):
            path = tmp_path / f"{before:o}{change.__name__}"
            path.touch()
            path.chmod(before)
            if os.access(path, os.W_OK) or change is tighten:
                change(path)
            assert mode(path) == after
    make_directory(tmp_path)
    assert mode(tmp_path) == 0o755
    tighten(tmp_path / "missing")
    assert not (tmp_path / "missing").exists()


def test_a_directory_with_the_group_bit_shares_what_is_created_below_it(tmp_path: Path, umask: int) -> None:
    """`chgrp readers DIR && chmod 2750 DIR` is all that an operator does; the umask may still take it away."""
    tmp_path.chmod(0o2750)
    make_directory(tmp_path / "a")
    write(tmp_path / "a" / "file")
    assert mode(tmp_path / "a") == 0o2750 & ~umask
    assert mode(tmp_path / "a" / "file") == (0o640 & ~umask if umask != 0o077 else 0o600)


def test_a_log_that_is_a_pipe_is_opened_as_it_is(tmp_path: Path) -> None:
    """Some link logs to /dev/stdout."""
    reading, writing = os.pipe()
    os.close(opener(f"/dev/fd/{writing}", os.O_WRONLY | os.O_APPEND))
    os.close(reading)
    os.close(writing)
