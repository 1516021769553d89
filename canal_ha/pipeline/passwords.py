"""Reads the password of a target."""

from __future__ import annotations

from pathlib import Path

from canal_ha.config.small_files import read_secret
from canal_ha.errors import SinkRefused
from canal_ha.pipeline.description import Description


def target_password(description: Description) -> str:
    """Return the options' `password`, or the content of `passwordFile`; "" without both. Raises SinkRefused.

    The file is read each time, so that a new password needs no restart.
    """
    options, file = description.target.options, description.file
    name = options.get("passwordFile")
    if name is None:
        return str(options.get("password", ""))
    try:
        return read_secret(Path(name))
    except OSError as error:
        raise SinkRefused(f"{file}: target: passwordFile = {name!r} cannot be read: {error.strerror}") from error
