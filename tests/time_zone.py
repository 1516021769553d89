"""The time zone of the process, which the texts of TIMESTAMP values follow."""

from __future__ import annotations

import os
import time

from canal_ha.decode.kernel import temporal


class zone:
    """Sets the time zone of the process for a block."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._before = os.environ.get("TZ")

    def __enter__(self) -> None:
        self._set(self._name)

    def __exit__(self, *_: object) -> None:
        self._set(self._before)

    @staticmethod
    def _set(name: str | None) -> None:
        if name is None:
            os.environ.pop("TZ", None)
        else:
            os.environ["TZ"] = name
        time.tzset()
        temporal.forget_zone()
