"""Transactions that others may be in the way of."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pymysql
from pymysql.constants import ER

_AGAIN = (ER.LOCK_WAIT_TIMEOUT, ER.LOCK_DEADLOCK)
_XA_COMMIT = ("XA END '{xid}'", "XA PREPARE '{xid}'", "XA COMMIT '{xid}'")
_XA_ROLLBACK = ("XA END '{xid}'", "XA ROLLBACK '{xid}'")


def committed(connection: Any, change: Callable[[Any], None], xid: str = "") -> bool:
    """Commit changes; return False if they were rolled back, because other transactions lock the rows.

    connection: not in autocommit mode. change: makes them with a cursor. xid: of an XA transaction; "": it is none.
    """
    with connection.cursor() as cursor:
        try:
            if xid:
                cursor.execute(f"XA START '{xid}'")
            change(cursor)
            for statement in _XA_COMMIT if xid else ("COMMIT",):
                cursor.execute(statement.format(xid=xid))
        except pymysql.OperationalError as error:
            if error.args[0] not in _AGAIN:
                raise
            for statement in _XA_ROLLBACK if xid else ("ROLLBACK",):
                with suppress(pymysql.MySQLError):  # a deadlock has ended the XA transaction's work, and XA END says so
                    cursor.execute(statement.format(xid=xid))
            return False
    return True
