"""A server that replicates from another one: the same statements for MySQL and MariaDB."""

from __future__ import annotations

from typing import Any

from lab.mysql import ADMIN, SqlServer
from lab.ports import LOOPBACK
from lab.waiting import until


class Replica:
    """The replicating side of a pair. server: needs log_replica_updates if its own binlog is to have the rows too."""

    def __init__(self, server: SqlServer) -> None:
        self.server = server
        self._mysql = server.flavor == "mysql"
        self._word = "REPLICA" if self._mysql else "SLAVE"

    def follow(self, port: int, start: tuple[str, int] | None) -> None:
        """Replicate from the server at this local port. start: its journal and offset; None: by GTID."""
        source: dict[str, str | int] = {
            "HOST": f"'{LOOPBACK}'",
            "PORT": port,
            "USER": f"'{ADMIN}'",
            "PASSWORD": f"'{ADMIN}'",
            "CONNECT_RETRY": 1,
        }
        if self._mysql:
            source |= {"SSL": 1, "AUTO_POSITION": int(start is None)}
        if start is not None:
            source |= {"LOG_FILE": f"'{start[0]}'", "LOG_POS": start[1]}
        prefix = "SOURCE" if self._mysql else "MASTER"
        options = [f"{prefix}_{name} = {value}" for name, value in source.items()]
        if not self._mysql:
            options.append(f"MASTER_USE_GTID = {'slave_pos' if start is None else 'no'}")
        change = "CHANGE REPLICATION SOURCE TO" if self._mysql else "CHANGE MASTER TO"
        self.server.execute(f"{change} {', '.join(options)}", f"START {self._word}")

    def stop(self, thread: str = "") -> None:
        """Stop replication. thread: IO_THREAD or SQL_THREAD for this part alone."""
        self.server.execute(f"STOP {self._word} {thread}")

    def start(self, thread: str = "") -> None:
        """Undo stop."""
        self.server.execute(f"START {self._word} {thread}")

    def forget(self) -> None:
        """Stop replication for good."""
        self.server.execute(f"STOP {self._word}", f"RESET {self._word} ALL")

    def promote(self) -> None:
        """Wait until the server has applied all events that it received, then stop replication."""
        key = "Replica_SQL_Running_State" if self._mysql else "Slave_SQL_Running_State"
        until(lambda: "read all" in str(self.state()[key]), what=f"the end of the relay log ({self.state()})")
        self.stop()

    def state(self) -> dict[str, Any]:
        """Return SHOW REPLICA STATUS."""
        return self.server.query("SHOW REPLICA STATUS")[0]

    def receives(self) -> str:
        """Return Yes if it reads from its source, No if it has given up, Connecting while it tries."""
        return str(self.state()["Replica_IO_Running" if self._mysql else "Slave_IO_Running"])

    def received(self) -> tuple[str, int]:
        """Return journal and offset of the source up to which all is received."""
        names = (
            ("Source_Log_File", "Read_Source_Log_Pos") if self._mysql else ("Master_Log_File", "Read_Master_Log_Pos")
        )
        state = self.state()
        return str(state[names[0]]), int(state[names[1]])

    def position(self) -> tuple[str, int]:
        """Return journal and offset of the source up to which all is applied."""
        names = ("Relay_Source_Log_File", "Exec_Source_Log_Pos")
        if not self._mysql:
            names = ("Relay_Master_Log_File", "Exec_Master_Log_Pos")
        state = self.state()
        return str(state[names[0]]), int(state[names[1]])
