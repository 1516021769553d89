"""Runs these tests in UTC: TIMESTAMP text follows the time zone of the process, and canal recorded in UTC."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.time_zone import zone


@pytest.fixture(autouse=True)
def utc() -> Iterator[None]:
    """Run in UTC."""
    with zone("UTC"):
        yield
