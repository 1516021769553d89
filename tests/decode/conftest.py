"""Runs these tests in UTC: TIMESTAMP text follows the time zone of the process, and canal recorded in UTC."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from canal_ha.decode.kernel import temporal


@pytest.fixture(autouse=True)
def utc() -> Iterator[None]:
    """Run in UTC."""
    with zone("UTC"):
        yield


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
