"""Writes the CREATE TABLE statement of a list of columns."""

from __future__ import annotations

from collections.abc import Sequence

from canal_ha.model.table import Column


def create_table(table: str, columns: Sequence[Column], charset: str = "") -> str:
    """Return CREATE TABLE as SHOW CREATE TABLE prints it; parsing it gives these columns.

    table: its name.
    columns: each needs a type text.
    charset: the table's; "" for the schema's.
    """
    lines = [_definition(column) for column in columns if not column.versioning]
    key = [quoted(column.name) for column in columns if column.key]
    if key:
        lines.append(f"PRIMARY KEY ({','.join(key)})")
    lines += [f"UNIQUE KEY ({quoted(column.name)})" for column in columns if column.unique]
    versioned = " WITH SYSTEM VERSIONING" if any(column.versioning for column in columns) else ""
    default = f" DEFAULT CHARSET={charset}" if charset else ""
    return f"CREATE TABLE {quoted(table)} ({', '.join(lines)}){default}{versioned}"


def quoted(name: str) -> str:
    """Return a name between back-quotes."""
    return "`" + name.replace("`", "``") + "`"


def _definition(column: Column) -> str:
    charset = f" CHARACTER SET {column.charset}" if column.charset else ""
    counts = " AUTO_INCREMENT" if column.auto_increment else ""
    invisible = " /*!80023 INVISIBLE */" if column.invisible else ""
    declared = column.mysql_type.replace("\\", "\\\\")  # in labels; a statement's text escapes it
    null = "" if column.nullable else " NOT NULL"
    return f"{quoted(column.name)} {declared}{charset}{null}{counts}{invisible}"
