"""Keys of canal that mean something else here, for the report of `canal-ha migrate`."""

from __future__ import annotations

from canal_ha.config import keys
from canal_ha.config.listeners import HASH_OF_ADMIN

_OF_CLIENT = "for each client id; in canal for all clients of a destination together"
_FOLLOWED = "a running node follows canal.properties too, and a bad file changes nothing"
_SQLITE = "of a SQLite file, if the history is not in ZooKeeper; an H2 file there is not read"
_H2 = (
    "canal's H2 file is not read: the history is kept in ZooKeeper, or in a SQLite file without it, and begins with the"
    " tables as they are at the first start"
)
_OF_MYSQL = "used only with a tsdb.url of MySQL; not for the history in ZooKeeper or in a SQLite file"

_DIFFERENCES = {
    keys.BUFFER_SIZE.name: _OF_CLIENT,
    keys.BUFFER_UNIT.name: _OF_CLIENT,
    keys.TRANSACTION_SIZE.name: _OF_CLIENT,
    keys.AUTO_SCAN.name: _FOLLOWED,
    keys.METRICS_PORT.name: "on the address of canal.ip, not on every address; with accounts it asks for a login",
    keys.CONSOLE_PORT.name: "stop and start of a destination are pause and resume, on all nodes"
    " (docs/protocol.md#admin-protocol)",
    keys.SLAVE_ID.name: "the server id of the first stream; each further client id has a stream with an id of its own",
    keys.BINLOG_FORMAT.name: "a source that is not in ROW format is refused, whatever this key allows",
    keys.AUTO_RESET.name: "canal.instance.position.lost, if set, comes first",
    keys.TSDB_DIR.name: _SQLITE,
    "kafka.retries": "0 has no effect, because transactions need retries; they double nothing",
}


def difference(name: str, value: str, tsdb_url: str) -> str:
    """Return how a key differs from canal's; "" if it does not.

    name: the key.
    value: its value.
    tsdb_url: the value of canal.instance.tsdb.url.
    """
    in_mysql = tsdb_url.startswith(("jdbc:mysql:", "mysql:"))
    if name == keys.TSDB_URL.name:
        return _H2 if value.startswith("jdbc:h2:") else ""
    if name in (keys.TSDB_USERNAME.name, keys.TSDB_PASSWORD.name):
        return "" if in_mysql else _OF_MYSQL
    if name == keys.SERVER_MODE.name and value.lower() == "kafka":
        return "messages are written in transactions; docs/how-to/write-to-kafka.md has the other differences"
    if name == keys.METRICS_PORT.name and value.startswith(("0", "-")):
        return ""
    if name == keys.CONSOLE_PASSWD.name and value.removeprefix("*").lower() == HASH_OF_ADMIN:
        return "the hash of the password admin, which everybody knows: the port opens with it on loopback only"
    if name == "kafka.retries" and value != "0":
        return ""
    if name in (keys.AUTO_RESET.name, keys.AUTO_SCAN.name) and value.lower() != "true":
        return ""
    return _DIFFERENCES.get(name, "")
