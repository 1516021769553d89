r"""Which topic and partition a message goes to, by canal's rules.

`canal.mq.dynamicTopic`: a list of `schema.table`, `schema`, or regular expressions of either, each with an optional
`topic:` before it. The first that matches the table decides, else the first that matches the schema. Without `topic:`
the topic is named after what matched, in lower case. Kafka's topics have `_` for each dot then.

`canal.mq.partitionHash`: a list of `schema.table` or regular expressions, each followed by `:column^column`, by `:$pk$`
for the primary key, or by nothing for the table's name. The first that matches decides; tables that match none go to
partition 0. The hashes of the values' texts are combined by XOR.

Source: canal 1.1.7, MQMessageUtils and CanalKafkaProducer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from canal_ha.decode.kernel.envelopes import Envelopes
from canal_ha.decode.name_lists import TABLES_KEPT, Match, match_of_server
from canal_ha.errors import FilterInvalid, OptionInvalid
from canal_ha.model.entry import EventType
from canal_ha.pipeline.row_entry import ImageColumns, RowEntry

EVERY_KEY = r".*\..*:$pk$"
_WILD = frozenset(r"*?+|(){}[]\$^")
_ILLEGAL = re.compile(r"[^A-Za-z0-9._-]")
_LONGEST_TOPIC = 249


@dataclass(frozen=True, slots=True)
class PartitionKey:
    """What a table's rows are distributed by. columns: their names; None: the primary key. table: its name instead."""

    columns: tuple[str, ...] | None = None
    table: bool = False


class RowPlace:
    """Finds the partition of a row: called with the texts of its values by column name, those of NULL left out.

    needs_values: whether they count.
    """

    def __init__(self, start: int, names: Sequence[str], count: int, fixed: int | None) -> None:
        self.needs_values = fixed is None and bool(names) and count > 1
        self._start = start
        self._names = names
        self._count = count
        self._fixed = fixed

    def __call__(self, texts: Mapping[str, str]) -> int:
        if self._fixed is not None:
            return self._fixed
        if self._count == 1:
            return 0
        hashed = self._start
        for name in self._names:
            hashed ^= java_hash(texts.get(name, ""))
        return partition_of(hashed, self._count)

    def of_rows(self, entry: RowEntry) -> list[int]:
        """Return the partition of each row of an entry, by its current image, if the values count.

        Raises RemoteProtocolError.
        """
        hashes = entry.rows.hashes(self._counted(entry.image), deleted=entry.event == EventType.DELETE)
        return [partition_of(self._start ^ hashed, self._count) for hashed in hashes]

    def of_messages(self, made: Envelopes, before: ImageColumns, after: ImageColumns) -> None:
        """Let an entry's messages find their partitions, if the values count. before, after: columns of the images."""
        made.partition_by(self._start, self._counted(before), self._counted(after), self._count)

    def _counted(self, columns: ImageColumns) -> list[int]:
        places = {name: place for place, name in enumerate(columns.names)}
        return [places[name] for name in self._names if name in places]


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the rows of a table go.

    key: what they are distributed by; None: nothing.
    count: partitions of the topic.
    database_hash: the name of the schema counts in the hash, too.
    fixed: partition of statements, and of all rows without `key`.
    """

    key: PartitionKey | None
    count: int
    database_hash: bool = True
    fixed: int = 0

    def placing(self, schema: str, table: str, keys: Sequence[str]) -> RowPlace:
        """Return what finds the partition of a table's rows. keys: its primary key."""
        if self.key is None:
            return RowPlace(0, (), self.count, self.fixed)
        if self.key.table:
            return RowPlace(0, (), self.count, partition_of(java_hash(table), self.count))
        names = keys if self.key.columns is None else self.key.columns
        return RowPlace(java_hash(schema) if self.database_hash else 0, names, self.count, None)


class PartitionRules:
    """The rules of canal.mq.partitionHash."""

    def __init__(self, text: str) -> None:
        """Parse the list. Raises OptionInvalid."""
        self._rules = [_partition_rule(item) for item in _items(text)]
        self.key_of = lru_cache(TABLES_KEPT)(self._key_of)

    def _key_of(self, schema: str, table: str) -> PartitionKey | None:
        name = f"{schema}.{table}"
        return next((key for matches, key in self._rules if matches(name)), None)


class TopicRules:
    """The rules of canal.mq.dynamicTopic."""

    def __init__(self, text: str, fallback: str) -> None:
        """Parse the list. fallback: the topic of tables that match no rule. Raises OptionInvalid."""
        self._fallback = fallback
        self._rules = [_topic_rule(item) for item in _items(text)]
        self.topic_of = lru_cache(TABLES_KEPT)(self._topic_of)

    def _topic_of(self, schema: str, table: str) -> str:
        if schema and table:
            for name in (f"{schema}.{table}", schema):
                for topic, matches in self._rules:
                    if matches(name):
                        return topic or name.lower()
        return self._fallback


class CountRules:
    """The rules of canal.mq.dynamicTopicPartitionNum: `topic:number` for names and regular expressions of topics."""

    def __init__(self, text: str) -> None:
        """Parse the list. Raises OptionInvalid."""
        self._rules = []
        for item in _items(text):
            name, colon, number = item.rpartition(":")
            if not colon or not number.isdecimal() or not int(number):
                raise OptionInvalid(f"{item!r}: expected topic:number")
            self._rules.append((_matcher(name), int(number)))

    def count_of(self, topic: str) -> int | None:
        """Return the number of partitions; None if no rule matches."""
        return next((number for matches, number in self._rules if matches(topic)), None)


def topic_name(text: str) -> str:
    """Return a valid name of a topic: `_` stands for each character that Kafka does not allow."""
    name = _ILLEGAL.sub("_", text)[:_LONGEST_TOPIC]
    return "_" * len(name) if name in (".", "..") else name


def partition_of(hashed: int, count: int) -> int:
    """Return the partition for a hash of `java_hash`. count: number of partitions."""
    return abs(hashed) % count


def java_hash(text: str) -> int:
    """Return Java's String.hashCode(), a signed number of 32 bits."""
    found = 0
    units: Iterable[int] = text.encode("latin-1") if text.isascii() else _units(text)
    for unit in units:
        found = (31 * found + unit) & 0xFFFFFFFF
    return found - (1 << 32) if found >= 1 << 31 else found


def _units(text: str) -> list[int]:
    raw = text.encode("utf-16-be", "surrogatepass")
    return [raw[at] << 8 | raw[at + 1] for at in range(0, len(raw), 2)]


def _items(text: str) -> list[str]:
    return [item for item in text.replace(",", ";").split(";") if item]


def _partition_rule(item: str) -> tuple[Match, PartitionKey]:
    name, colon, columns = item.rpartition(":")
    if not colon or not name:
        return _matcher(item), PartitionKey(table=True)
    if columns.lower() == "$pk$":
        return _matcher(name), PartitionKey()
    return _matcher(name), PartitionKey(tuple(column for column in columns.split("^") if column))


def _topic_rule(item: str) -> tuple[str, Match]:
    topic, colon, rule = item.partition(":")
    if not colon:
        topic, rule = "", item
    else:
        topic, rule = topic.strip(), rule.strip()
    matches = _matcher(rule)
    if not _wild(rule):
        return topic, matches
    of_table = r"\." in rule
    return topic, lambda name: of_table is ("." in name) and matches(name)


def _wild(rule: str) -> bool:
    return not _WILD.isdisjoint(rule)


def _matcher(rule: str) -> Match:
    if not _wild(rule):
        lower = rule.lower()
        return lambda name: name.lower() == lower
    try:
        match: Callable[[str], bool] | None = match_of_server(rule)
    except FilterInvalid as error:
        raise OptionInvalid(str(error).removeprefix("table filter ")) from error
    return lambda name: match is None or match(name.lower())
