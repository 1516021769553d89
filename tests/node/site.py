"""A source with its own schema, and a node that follows it under several names."""

from __future__ import annotations

from dataclasses import dataclass

from canal_ha.source.connection.identity import replica
from lab import Node, SqlServer


@dataclass(frozen=True, slots=True)
class Site:
    """A source, a node that follows it under several names, and a schema for the tables of the tests."""

    server: SqlServer
    node: Node
    schema: str

    def insert(self, table: str, *ids: int) -> None:
        """Insert rows in one transaction."""
        values = ", ".join(f"({number}, 'v{number}')" for number in ids)
        self.server.execute(f"INSERT INTO {self.schema}.{table} VALUES {values}")

    def table(self, name: str) -> str:
        """Create a table (id, v) and return the filter that selects only this table."""
        self.server.execute(f"CREATE TABLE {self.schema}.{name} (id int PRIMARY KEY, v varchar(20))")
        return rf"{self.schema}\.{name}"

    def dumps(self, destination: str, client_id: int = 1001) -> bool:
        """Return whether the source lists a replica for this stream."""
        statement = "SHOW REPLICAS" if self.server.flavor == "mysql" else "SHOW SLAVE HOSTS"
        return replica(destination, client_id).name in {row["Host"] for row in self.server.query(statement)}
