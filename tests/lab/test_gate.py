"""The table of the gate, asked of a real node."""

from __future__ import annotations

import pytest

from lab.gate import ADMIN, HTTP, PACKETS, walk

pytestmark = pytest.mark.real


def test_a_real_node_answers_as_the_table_says() -> None:
    """Each packet, route and request of the admin protocol is refused to everybody but those whom the table names."""
    assert walk() == {**PACKETS, **HTTP, **ADMIN}
