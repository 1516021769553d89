"""Transforms: columns left out, masked, hashed, renamed or cast, and tables renamed, before a target gets them.

They apply in the order of the file. Each sees the names that the ones before it gave. If several protect a column, the
strictest counts: drop, mask, hash; a protected column is a varchar(64), whatever a cast says.
Pure but for the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from canal_ha import logs
from canal_ha.client.arrow import META, TableBatch
from canal_ha.client.arrow_types import strings
from canal_ha.client.rows import Value, converted
from canal_ha.decode.ddl.statements import AlterTable
from canal_ha.decode.kernel.changes import Convert
from canal_ha.decode.kernel.layouts import ColumnLayout, KeyPlaces, Layout, primary_key
from canal_ha.decode.privacy import Protection
from canal_ha.errors import SinkRefused
from canal_ha.pipeline.column_transform import ColumnTransform, kept
from canal_ha.pipeline.given_key import GivenKeys, places_by_key
from canal_ha.pipeline.kept_columns import adds_of, drops_of, renames_of
from canal_ha.pipeline.statement_text import renamed_to, text_for
from canal_ha.pipeline.transform_rules import TABLES_KEPT, Table, TransformRule, rule_of

log = logs.Spared(logs.get(__name__))  # a source can have many tables


class TableTransform:
    """What happens to a table. It keeps what it has decided about columns.

    schema, table: its names at the target.
    """

    def __init__(
        self,
        source: Table,
        rules: Sequence[TransformRule],
        keys: Mapping[str, Sequence[str]],
        given: GivenKeys,
        exposes: Callable[[TableTransform, Table], bool],
    ) -> None:
        """Decide about the table.

        source: its schema and name at the source.
        rules: all transforms.
        keys: given key columns, by names at the target.
        given: other names of these.
        exposes: returns whether another name of the table shows a column that is protected here.
        """
        self._exposes = exposes
        self._source = source
        self._columns: dict[str, ColumnTransform] = {}
        self._rules: list[TransformRule] = []  # for columns
        self._looked = False  # whether its columns have been compared with those that the rules hide
        self.schema, self.table = source
        self.merges = False
        for rule in rules:
            if rule.places is None:
                self._rules += [rule] if rule.matches(self.schema, self.table) else []
            elif place := rule.places(self.schema, self.table):
                self.schema, self.table = place
                self.merges |= rule.merges
        self._keys = frozenset(key.lower() for key in keys.get(f"{self.schema}.{self.table}", ()))
        self._given = given

    @property
    def renames(self) -> bool:
        """Whether the table has another name at the target."""
        return (self.schema, self.table) != self._source

    @property
    def changes(self) -> bool:
        """Whether anything may differ at the target."""
        return self.renames or self.merges or bool(self._rules)

    @property
    def protecting(self) -> frozenset[TransformRule]:
        """The transforms that hide columns of it."""
        return frozenset(rule for rule in self._rules if rule.protects)

    def named(self, name: str) -> ColumnTransform:
        """Return what happens to the column of this name."""
        found = self._columns.get(name)
        if found is None:
            found = ColumnTransform(name, name)
            for rule in self._rules:
                found = rule.column(found)
            self._columns[name] = found
        return found

    def column(self, column: ColumnLayout) -> ColumnTransform:
        """Return what happens to a column. Raises SinkRefused if that would hide a key."""
        found = self.named(column.name)
        if found.protection > Protection.HASH and (column.key or found.name.lower() in self._keys):
            verb = "drop" if found.dropped else "mask"
            schema, table = self._source
            raise SinkRefused(
                f"canal: the transform {verb} hides {column.name}, a key column of {schema}.{table}: no row could be"
                " found again. Use hash, or leave the column as it is"
            )
        return found

    def batch(self, batch: TableBatch) -> TableBatch:
        """Return the rows as the target gets them. Raises SinkRefused for two columns with one name."""
        if not self.changes:
            return batch
        own = batch.rows.num_columns - len(META)
        fields, columns = list(batch.rows.schema), list(batch.rows.columns)
        for at in range(own):
            plan = self.named(fields[at].name)
            fields[at], columns[at] = fields[at].with_name(plan.name), plan.values(columns[at])
        self._check_names([field.name for field in fields])
        if batch.rows.num_rows and columns[own][0].as_py() == "ddl":
            columns[-1] = strings([self.statement(sql) for sql in columns[-1].to_pylist()])
        rows = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, metadata=batch.rows.schema.metadata))
        return TableBatch(self.schema, self.table, rows)

    def names(self, columns: Iterable[ColumnLayout]) -> list[tuple[ColumnLayout, ColumnTransform]]:
        """Return the columns that the target gets, with what happens to them. Raises SinkRefused."""
        columns = list(columns)
        self._look_for_hidden(columns)
        left = [(column, plan) for column in columns if not (plan := self.column(column)).dropped]
        self._check_names([plan.name for _, plan in left])
        return left

    @property
    def other_names(self) -> Mapping[str, str]:
        """The other names of given key columns, in lower case, with the name in the file."""
        return self._given.others(f"{self.schema}.{self.table}")

    def note_names(self, alter: AlterTable) -> None:
        """Note the names that a statement about the table gives to columns. Raises SinkRefused; see GivenKeys.alter."""
        renamed = [(self.named(old).name, self.named(new).name) for old, new in renames_of(alter)]
        dropped, added = ([self.named(name).name for name in names(alter)] for names in (drops_of, adds_of))
        self._given.alter(f"{self.schema}.{self.table}", dropped, renamed, added)

    @property
    def key_places(self) -> KeyPlaces | None:
        """What finds the columns of the given key; None without one."""
        return self._key_places if self._keys else None

    def _key_places(self, columns: list[ColumnLayout]) -> list[int]:
        """Return the places of the given key's columns; if one is missing, those of the primary key."""
        found = places_by_key([self.named(column.name).name for column in columns], self.other_names)
        given = sorted(found[key] for key in self._keys if key in found)
        return given if len(given) == len(self._keys) else primary_key(columns)

    @property
    def convert(self) -> Convert:
        """What makes values for `values`, from canal's texts."""
        return kept if self._rules else converted

    def values(self, given: dict[str, Any] | None, layout: Layout, time_zone: str) -> dict[str, Value] | None:
        """Return one image of a row as the target gets it. Raises SinkRefused.

        given: values that `convert` has made.
        layout: the image's columns.
        time_zone: of the server process.
        """
        if given is None or not self._rules:
            return given
        if layout.plan is None:
            layout.plan = [
                (column.name, plan.name, plan.value_of(column, time_zone))
                for column, plan in self.names(layout.columns)
            ]
        return {name: None if given[old] is None else value_of(given[old]) for old, name, value_of in layout.plan}

    def statement(self, sql: str) -> str:
        """Return the text of a statement as it is about the target's table. Raises SinkRefused."""
        if not self.changes:
            return sql
        for new in renamed_to(sql, self._source):
            if self._exposes(self, new):
                raise SinkRefused(
                    f"canal: {'.'.join(self._source)} gets the name {'.'.join(new)}, under which the transforms protect"
                    " fewer columns: add that name to them"
                )
        target = (self.schema, self.table)
        return text_for(sql, self._source, target, self.named, merged=self.merges)

    def _look_for_hidden(self, columns: Sequence[ColumnLayout]) -> None:
        """Log columns that the rules hide in this table alone, and that its first row does not have: a mistake in a
        name would hide nothing. Each rule sees the names that the ones before it gave."""
        if self._looked or not columns:  # an INSERT has no image before
            return
        self._looked = True
        missing = {rule: set(rule.hides) for rule in self._rules if rule.hides}
        for column in columns if missing else ():
            plan = ColumnTransform(column.name, column.name)
            for rule in self._rules:
                missing.get(rule, set()).discard(plan.name.lower())
                plan = rule.column(plan)
        for name in sorted({name for names in missing.values() for name in names}):
            log.warning("pipeline.nothing_to_hide", table=".".join(self._source), column=name)

    def _check_names(self, names: Sequence[str]) -> None:
        lower = [name.lower() for name in names]
        for name in names:
            if lower.count(name.lower()) > 1:
                raise SinkRefused(f"canal: the transforms give two columns of {'.'.join(self._source)} the name {name}")


class Transforms:
    """The transforms of one pipeline. It keeps what it has decided about tables; one thread."""

    def __init__(
        self,
        given: Sequence[Mapping[str, Any]] = (),
        keys: Mapping[str, Sequence[str]] | None = None,
        takes: Callable[[str, str], bool] = lambda schema, table: True,
    ) -> None:
        """Compile.

        given: as in the file, which the schema has accepted.
        keys: given key columns, by `schema.table` at the target.
        takes: returns whether the pipeline includes a table (schema, name).
        Raises OptionInvalid.
        """
        self._takes = takes
        self._rules = [rule_of(*item) for each in given for item in each.items()]
        self._keys = keys or {}
        self.given = GivenKeys(self._keys)
        self._plans: dict[Table, TableTransform] = {}
        self._sources: dict[Table, Table] = {}  # of the target's tables
        self._merged: set[Table] = set()  # of the target

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self._rules)

    def of(self, schema: str, table: str) -> TableTransform:
        """Return what happens to a table of the pipeline. Raises SinkRefused if another one has its name already."""
        source = (schema, table)
        plan = self._plans.get(source)
        if plan is None:
            plan = self._plan(source)
            target = (plan.schema, plan.table)
            first = self._sources.setdefault(target, source)
            if plan.merges:
                self._merged.add(target)
            if first != source and not plan.merges:
                raise SinkRefused(
                    f"canal: {'.'.join(first)} and {'.'.join(source)} are both {'.'.join(target)} at the target: give"
                    " them two names, or set merge: true in the route if no key is in both"
                )
            if len(self._plans) >= TABLES_KEPT:
                self._plans.clear()
                self._sources = {target: source}
            self._plans[source] = plan
        return plan

    def merged(self, schema: str, table: str) -> bool:
        """Return whether a table of the target has come from a route that merges tables."""
        return (schema, table) in self._merged

    def _exposes(self, old: TableTransform, new: Table) -> bool:
        """Return whether a table of the pipeline shows, under another name, a column that is protected now."""
        return self._takes(*new) and bool(old.protecting - self._plan(new).protecting)

    def _plan(self, source: Table) -> TableTransform:
        return TableTransform(source, self._rules, self._keys, self.given, self._exposes)
