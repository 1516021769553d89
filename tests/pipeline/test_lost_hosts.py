"""A target whose host loses power must not hold a pipeline for hours."""

from __future__ import annotations

import socket

import pytest

from canal_ha.pipeline.targets.mysql import SILENT_S, notice_lost_hosts


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="this system has no such option")
def test_a_connection_gives_a_silent_host_up() -> None:
    """Both while it waits for an answer and while what it sent is not confirmed."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as connection:
        notice_lost_hosts(connection)
        read = [
            connection.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        ]
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert read[0] + read[1] * read[2] == SILENT_S
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == SILENT_S * 1000
