"""A target that is a database, and its copies of one source database."""

from __future__ import annotations

from typing import Any

from canal_ha.pipeline.description import Description, TargetDescription
from canal_ha.pipeline.postgresql_copies import identifier
from canal_ha.pipeline.targets import open_target
from canal_ha.pipeline.targets.target import PipelineTarget
from lab import SqlServer
from lab.postgresql import OWNER, PostgreSQL

KINDS = ("postgresql", "mysql", "mariadb")


class SqlCopies:
    """The copies of `database`, below the name `copy_<database>`."""

    def __init__(self, server: PostgreSQL | SqlServer, database: str) -> None:
        self.server = server
        self.database = database
        self.is_postgresql = isinstance(server, PostgreSQL)
        self.kind = "postgresql" if self.is_postgresql else "mysql"
        self.place = f"copy_{database}"
        self.state = f"state_{database}"
        self.target = self.open()

    def description(self, mode: Any = "mirror", evolve: Any = "evolve", **options: Any) -> Description:
        """Return the pipeline. options: of the target; `tables` and `keys` of the pipeline."""
        tables, keys = options.pop("tables", (f"{self.database}.*",)), options.pop("keys", {})
        target = TargetDescription(self.kind, mode, evolve, {**self.options(), **options})
        return Description("p.yaml", "p", "embedded", "state", tables, keys, {}, target)

    def options(self) -> dict[str, Any]:
        """Return the options of the target."""
        if self.is_postgresql:
            own = {"database": "postgres", "user": OWNER, "password": OWNER}
            places = {"schema": "copy_{schema}", "stateSchema": self.state}
        else:
            own = {"user": "admin", "password": "admin"}
            places = {"database": "copy_{schema}", "stateDatabase": self.state}
        return {"address": self.server.address, **own, **places}

    def open(self, mode: Any = "mirror", evolve: Any = "evolve", **options: Any) -> PipelineTarget:
        """Return a new target."""
        return open_target(self.description(mode, evolve, **options))

    def name(self, name: str) -> str:
        """Return a quoted name."""
        quote = '"' if self.is_postgresql else "`"
        return f"{quote}{name.replace(quote, quote * 2)}{quote}"

    def shown(self, name: str) -> str:
        """Return the name that the server has for a name of the source."""
        return identifier(name) if self.is_postgresql else name

    def rows(self, table: str = "t", columns: str = "*", order: str = "id") -> list[dict[str, Any]]:
        """Return the rows of a copy."""
        return self.query(f"SELECT {columns} FROM {self.table(table)} ORDER BY {order}")

    def table(self, table: str) -> str:
        """Return the quoted name of a copy."""
        return f"{self.name(self.place)}.{self.name(table)}"

    def query(self, statement: str) -> list[dict[str, Any]]:
        """Return the rows of a statement."""
        return self.server.query(statement)

    def keys(self, table: str = "t") -> set[str]:
        """Return the columns of a copy's primary key."""
        found = self.query(
            "SELECT column_name AS k FROM information_schema.key_column_usage"
            f" WHERE table_schema = '{self.place}' AND table_name = '{table}'"
        )
        return {row["k"] for row in found}

    def columns(self, table: str = "t") -> list[str]:
        """Return the names of a copy's columns, in order."""
        found = self.query(
            "SELECT column_name AS c FROM information_schema.columns"
            f" WHERE table_schema = '{self.place}' AND table_name = '{table}' ORDER BY ordinal_position"
        )
        return [row["c"] for row in found]
