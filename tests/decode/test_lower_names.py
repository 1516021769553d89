"""The names in statements of a server that stores them in lower case."""

from __future__ import annotations

import pytest

from canal_ha.decode.ddl.lower_names import lowered_text
from canal_ha.wire.proto import entry_protocol_pb2 as entry
from lab.dump import AnyTable, Dump, decoder, entries


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("TRUNCATE Shop.A", "TRUNCATE shop.a"),
        (
            "DROP TABLE IF EXISTS `Shop` . `A``B`, B /* From Client */",
            "DROP TABLE IF EXISTS `shop` . `a``b`, b /* From Client */",
        ),
        ('DROP TABLE "Shop"."A"', 'DROP TABLE "shop"."a"'),
        ("RENAME TABLE A TO Other.B, B TO C", "RENAME TABLE a TO other.b, b TO c"),
        ("/*!40000 ALTER TABLE `A` DISABLE KEYS */", "/*!40000 ALTER TABLE `a` DISABLE KEYS */"),
        (
            "ALTER TABLE A ADD A INT COMMENT 'A', RENAME COLUMN B TO C",
            "ALTER TABLE a ADD A INT COMMENT 'A', RENAME COLUMN B TO C",
        ),
        ("ALTER TABLE A RENAME TO 1B", "ALTER TABLE a RENAME TO 1b"),
        ("ALTER TABLE A EXCHANGE PARTITION P WITH TABLE B", "ALTER TABLE a EXCHANGE PARTITION P WITH TABLE b"),
        ("CREATE TABLE A LIKE B", "CREATE TABLE a LIKE b"),
        ("CREATE TABLE Ä (A INT, PRIMARY KEY (A))", "CREATE TABLE ä (A INT, PRIMARY KEY (A))"),
        ("CREATE UNIQUE INDEX I ON A (B)", "CREATE UNIQUE INDEX I ON a (B)"),
        ("DROP INDEX I ON Shop.A", "DROP INDEX I ON shop.a"),
        ("DROP DATABASE `Shop`", "DROP DATABASE `shop`"),
        ("ALTER TABLE A ADD COLUMN (", "ALTER TABLE A ADD COLUMN ("),
    ],
)
def test_only_names_of_tables_and_schemas_get_lower_case(sql: str, expected: str) -> None:
    assert lowered_text(sql) == expected


def test_entries_in_the_exact_form_have_the_stored_names_alone() -> None:
    """canal's form has what was typed, as canal has it."""
    history = AnyTable()
    history.lowers_names = True
    statements = "ALTER TABLE A ADD B INT", "INSERT INTO A VALUES ('A')"
    dump = Dump().format().query(statements[0], schema="S").begin().query(statements[1], schema="S").xid()

    def told(*, exact: bool) -> list[tuple[str, str, str, str]]:
        found = []
        for raw in entries(list(decoder(history, exact=exact).feed(bytes(dump.data)))):
            one = entry.Entry.FromString(raw)
            if one.entryType != entry.ROWDATA:
                continue
            change = entry.RowChange.FromString(one.storeValue)
            found.append((one.header.schemaName, one.header.tableName, change.sql, change.ddlSchemaName))
        return found

    assert told(exact=False) == [("S", "A", sql, "S") for sql in statements]
    assert told(exact=True) == [("s", "a", "ALTER TABLE a ADD B INT", "s"), ("s", "a", statements[1], "s")]
