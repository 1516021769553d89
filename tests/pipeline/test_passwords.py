"""The passwords of targets and sources, which files of their own hold."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from canal_ha.errors import OptionInvalid, SinkRefused
from canal_ha.pipeline.options import parse
from canal_ha.pipeline.passwords import target_password
from tests.pipeline.given import described


@pytest.mark.parametrize(("kind", "reason"), [("pipe", "not a regular file"), ("binary", "not UTF-8")])
def test_a_password_file_that_is_a_pipe_held_a_pipeline(kind: str, reason: str, tmp_path: Path) -> None:
    """It waited for a writer. A file that is not UTF-8 ended it with a traceback."""
    file = tmp_path / kind
    if kind == "pipe":
        os.mkfifo(file)
    else:
        file.write_bytes(b"\xff")
    with pytest.raises(SinkRefused, match=reason):
        target_password(described("mysql", "mirror", tmp_path, {"passwordFile": str(file)}))
    with pytest.raises(OptionInvalid, match=reason):
        parse({"servers": "node:1", "destination": "d", "user": "u", "passwordFile": str(file)})
