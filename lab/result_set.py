"""Rows of a SELECT as the packets in which a server sends them."""

from __future__ import annotations

from typing import Any

from pymysql.constants import COMMAND
from pymysql.err import raise_mysql_exception

_ERROR = 0xFF
_EOF = 0xFE
_EOF_BYTES = 9  # a packet that begins with 0xFE and has fewer is no row
_FULL_PACKET = 0xFFFFFF


def raw_rows(connection: Any, statement: str) -> bytes:
    """Return the packets of the rows with their headers, without those before and behind them.

    connection: of PyMySQL, with nothing to read.
    statement: a SELECT.
    Raises MySQLError.
    """
    connection._execute_command(COMMAND.COM_QUERY, statement)
    columns = connection._read_packet().read_length_encoded_integer()
    for _ in range(columns + 1):
        connection._read_packet()
    rows = bytearray()
    while True:
        header = connection._rfile.read(4)
        size = int.from_bytes(header[:3], "little")
        content = connection._rfile.read(size)
        if content[0] == _ERROR:
            raise_mysql_exception(content)
        if content[0] == _EOF and size < _EOF_BYTES:
            return bytes(rows)
        rows += header + content
        while size == _FULL_PACKET:
            header = connection._rfile.read(4)
            size = int.from_bytes(header[:3], "little")
            rows += header + connection._rfile.read(size)
