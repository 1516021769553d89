"""Scripts of table definitions."""

from __future__ import annotations

import pytest

from canal_ha.decode.ddl.grammar import read
from canal_ha.decode.ddl.script import Definitions, statements
from canal_ha.decode.ddl.statements import CreateTable

DUMP = """
-- MySQL dump; with a quote's problem
/*!40101 SET NAMES utf8mb4 */;
CREATE DATABASE /*!32312 IF NOT EXISTS*/ `shop`;
USE `shop`;
DROP TABLE IF EXISTS `orders`;
/*!50503 SET character_set_client = utf8mb4 */;
CREATE TABLE `orders` (
  `id` int unsigned NOT NULL, # a comment; here
  `note` varchar(20) DEFAULT 'a;b''c\\'d',
  `state` enum('a;','b') NOT NULL
) ENGINE=InnoDB;
ALTER TABLE `orders` ADD PRIMARY KEY (`id`), ADD COLUMN `x;y` json;
DELIMITER ;;
CREATE TRIGGER t BEFORE INSERT ON orders FOR EACH ROW BEGIN SET NEW.id = 1; SET NEW.note = ''; END ;;
DELIMITER ;
CREATE TABLE other.plain (a int)
"""


def test_statements() -> None:
    """Semicolons in quotes, comments and trigger bodies do not end a statement."""
    found = list(statements(DUMP))
    assert [text.split("\n")[0][:24] for text in found] == [
        "/*!40101 SET NAMES utf8m",
        "CREATE DATABASE /*!32312",
        "USE `shop`",
        "DROP TABLE IF EXISTS `or",
        "/*!50503 SET character_s",
        "CREATE TABLE `orders` (",
        "ALTER TABLE `orders` ADD",
        "CREATE TRIGGER t BEFORE ",
        "CREATE TABLE other.plain",
    ]


def test_definitions() -> None:
    """Keys and columns that a later ALTER adds are part of the table."""
    tables = Definitions(DUMP)
    assert len(tables) == 2
    text = tables.fetch("shop", "orders")
    assert text is not None
    created = read(text)
    assert isinstance(created, CreateTable)
    assert [(column.name, column.mysql_type, column.key, column.nullable) for column in created.columns] == [
        ("id", "int unsigned", True, False),
        ("note", "varchar(20)", False, True),
        ("state", "enum('a;','b')", False, False),
        ("x;y", "json", False, True),
    ]
    assert tables.fetch("other", "plain") == "CREATE TABLE `plain` (`a` int)"
    assert tables.fetch("shop", "plain") is None


def test_tables_of_no_schema_fit_every_schema() -> None:
    """A table without a schema name, as in a mysqldump of one database, fits every schema."""
    tables = Definitions("CREATE TABLE t (a int); RENAME TABLE t TO u; CREATE TABLE v LIKE u; DROP TABLE u")
    assert tables.fetch("any", "v") == "CREATE TABLE `v` (`a` int)"
    assert tables.fetch("any", "t") is tables.fetch("any", "u") is None


@pytest.mark.parametrize("text", ["CREATE TABLE t (a int", "ALTER TABLE t ADD COLUMN", "CREATE TABLE t (a 'x"])
def test_what_cannot_be_read(text: str) -> None:
    """A statement on a table that cannot be read raises ValueError with the statement."""
    with pytest.raises(ValueError, match="TABLE t"):
        Definitions(f"CREATE TABLE u (a int); {text}")
