"""Errors of a server that say nothing about the statement: the same SELECT may succeed later. Pure."""

from __future__ import annotations

from pymysql.constants import ER

_OF_THE_FILES = 1000  # smaller numbers: a temporary file, memory
_OF_THE_CLIENT = range(2000, 3000)  # PyMySQL's: the connection broke
_PASSING = {
    ER.CANT_LOCK,
    ER.DISK_FULL,
    ER.ERROR_ON_CLOSE,
    ER.ERROR_ON_READ,
    ER.ERROR_ON_WRITE,
    ER.FILSORT_ABORT,
    ER.GET_ERRNO,
    ER.OUTOFMEMORY,
    ER.OUT_OF_SORTMEMORY,
    ER.CON_COUNT_ERROR,
    ER.OUT_OF_RESOURCES,
    ER.UNKNOWN_COM_ERROR,  # Galera: the node is not ready
    ER.SERVER_SHUTDOWN,
    ER.NORMAL_SHUTDOWN,
    ER.FORCING_CLOSE,
    ER.RECORD_FILE_FULL,  # of a temporary table
    ER.CANT_CREATE_THREAD,
    ER.ABORTING_CONNECTION,
    ER.NET_READ_ERROR_FROM_PIPE,
    ER.NET_FCNTL_ERROR,
    ER.NET_PACKETS_OUT_OF_ORDER,
    ER.NET_UNCOMPRESS_ERROR,
    ER.NET_READ_ERROR,
    ER.NET_READ_INTERRUPTED,
    ER.NET_ERROR_ON_WRITE,
    ER.NET_WRITE_INTERRUPTED,
    ER.NEW_ABORTING_CONNECTION,
    ER.TOO_MANY_USER_CONNECTIONS,
    ER.LOCK_WAIT_TIMEOUT,
    ER.LOCK_TABLE_FULL,
    ER.LOCK_DEADLOCK,
    ER.USER_LIMIT_REACHED,
    ER.QUERY_INTERRUPTED,
    1927,  # MariaDB's ER_CONNECTION_KILLED
    3032,  # ER_SERVER_OFFLINE_MODE
    3168,  # ER_SERVER_ISNT_AVAILABLE
    3169,  # ER_SESSION_WAS_KILLED
    4031,  # ER_CLIENT_INTERACTION_TIMEOUT
}


def passes(errno: int) -> bool:
    """Return whether an error may pass by itself. errno: the server's or PyMySQL's; 0 if there is none."""
    return errno < _OF_THE_FILES or errno in _OF_THE_CLIENT or errno in _PASSING
