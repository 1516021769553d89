r"""Table and column filters: canal's lists of regular expressions (docs/protocol.md#filters).

A table list is comma separated; every item is a Perl regular expression that must match the whole `schema.table`
(`test\.user`, `test\..*`). Items are sorted longest first and joined as `^item$|^item$`. Letter case is ignored
and `.` matches line ends. An empty include list accepts every table, an empty exclude list none.
"""

from __future__ import annotations

from canal_ha.config.model import FilterMode
from canal_ha.decode.name_lists import by_table, match_of_client, match_of_server


class TableFilter:
    """Include and exclude list of one stream. It caches decisions by name; no locks: one stream, one thread."""

    def __init__(self, include: str, exclude: str, *, of_client: bool = False) -> None:
        """Compile the lists. Raises FilterInvalid, naming the item at fault.

        include: the server's list, or a client's.
        exclude: the server's list.
        of_client: whether `include` is a client's, which allows less syntax.
        """
        self.include = include
        self.exclude = exclude
        self._included = match_of_client(include) if of_client else match_of_server(include)
        self._excluded = match_of_server(exclude)
        self._decided = by_table(self._decide)

    def accepts(self, schema: str, table: str) -> bool:
        """Return whether the stream gets the rows of this table. `.` (no schema, no table) is a name too.

        Raises FilterInvalid if one of the server's lists takes too long.
        """
        return self._decided(schema, table)

    def _decide(self, target: str) -> bool:
        included = self._included is None or self._included(target)
        return included and not (self._excluded is not None and self._excluded(target))

    def __repr__(self) -> str:
        return f"TableFilter({self.include!r}, {self.exclude!r})"


class _Both(TableFilter):
    """A list that narrows another filter."""

    def __init__(self, wide: TableFilter, include: str, *, of_client: bool = False) -> None:
        super().__init__(include, wide.exclude, of_client=of_client)
        self._wide = wide

    def _decide(self, target: str) -> bool:
        return self._wide._decide(target) and super()._decide(target)


def effective(
    server_include: str, server_exclude: str, client_filter: str, mode: FilterMode, within: str = ""
) -> TableFilter:
    """Return the filter of one stream.

    server_include, server_exclude: the server's lists; the exclude list always applies, as in canal.
    client_filter: replaces the server's include list or narrows it (AND), unless it is "".
    mode: replace or AND.
    within: the widest filter of the client's account, which narrows all of that; "": any.
    Raises FilterInvalid.
    """
    if not client_filter:
        made = TableFilter(server_include, server_exclude)
    elif mode is FilterMode.AND:
        made = _Both(TableFilter(server_include, server_exclude), client_filter, of_client=True)
    else:
        made = TableFilter(client_filter, server_exclude, of_client=True)
    return _Both(made, within) if within else made


class FieldFilter:
    """Columns to keep or to drop, as `schema.table:column/column,schema.table:column` (canal.instance.filter.field).

    If the include list names a table, it lists all its columns, and the exclude list is ignored for that table. Letter
    case is ignored. An item without exactly one colon is ignored.
    """

    def __init__(self, include: str, exclude: str) -> None:
        self._include = _parse_fields(include)
        self._exclude = _parse_fields(exclude)

    def keeps(self, schema: str, table: str, column: str) -> bool:
        """Return whether the column is emitted."""
        name = f"{schema}.{table}".upper()
        if name in self._include:
            return column.upper() in self._include[name]
        return column.upper() not in self._exclude.get(name, ())

    def touches(self, schema: str, table: str) -> bool:
        """Return whether some columns of the table may be dropped."""
        name = f"{schema}.{table}".upper()
        return name in self._include or name in self._exclude


def _parse_fields(text: str) -> dict[str, frozenset[str]]:
    fields: dict[str, frozenset[str]] = {}
    for item in text.split(","):
        name, _, columns = item.partition(":")
        if columns.strip() and ":" not in columns:
            fields[name.strip().upper()] = frozenset(column.strip().upper() for column in columns.split("/"))
    return fields
