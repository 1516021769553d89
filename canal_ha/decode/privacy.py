r"""Protected columns: dropped, masked or hashed before anything leaves the node (docs/how-to/hide-columns.md).

A rule is `schema\.table:column/column`: a regular expression that must match the whole `schema.table`, and names of
columns. Letter case is ignored. If several rules name a column, the strictest protection applies.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum

from canal_ha.config.model import DecodeOptions
from canal_ha.decode.name_lists import Match, by_table, match_of_server
from canal_ha.errors import FilterInvalid
from canal_ha.model.excerpt import excerpt
from canal_ha.model.privacy import NO_RULES, ColumnRules

PROTECTED_TYPE = "varchar(64)"
"""mysqlType of hashed and masked columns."""
MASK = b"***"


class Protection(IntEnum):
    """What happens to a column; a larger number is stricter."""

    NONE = 0
    HASH = 1
    MASK = 2
    DROP = 3


class Privacy:
    """The protected columns of one stream. It caches decisions by name; no locks: one stream, one thread."""

    def __init__(self, rules: Iterable[ColumnRules] = (), key: str = "") -> None:
        """Compile the rules.

        rules: of the destination and of the account.
        key: of the hashes.
        Raises FilterInvalid for a rule that cannot be read, and for columns to hash without a key.
        """
        self._rules: list[tuple[Match, frozenset[str], Protection]] = []
        for each in rules:
            self._add(each.hash, Protection.HASH)
            self._add(each.mask, Protection.MASK)
            self._add(each.drop, Protection.DROP)
        self._keyed = hmac.new(key.encode(), digestmod="sha256")
        if not key and any(protection is Protection.HASH for _, _, protection in self._rules):
            raise FilterInvalid("columns are to be hashed, but the destination has no canal.instance.privacy.key")
        self._decided = by_table(self._decide)
        self.columns: frozenset[str] = frozenset().union(*(columns for _, columns, _ in self._rules))
        """Names in the rules, in lower case."""

    @property
    def on(self) -> bool:
        """Whether there is any rule."""
        return bool(self._rules)

    def columns_of(self, schema: str, table: str) -> Mapping[str, Protection]:
        """Return the protected columns of a table, in lower case. Raises FilterInvalid if a rule takes too long."""
        if not self._rules:
            return {}
        return self._decided(schema, table)

    def protect(self, protection: Protection) -> Callable[[bytes], bytes]:
        """Return what makes the delivered text of a value from its own text, both UTF-8."""
        return self._hashed if protection is Protection.HASH else _masked

    def _decide(self, target: str) -> Mapping[str, Protection]:
        found: dict[str, Protection] = {}
        for matches, columns, protection in self._rules:
            if matches(target):
                for column in columns:
                    found[column] = max(protection, found.get(column, protection))
        return found

    def _add(self, text: str, protection: Protection) -> None:
        for item in filter(None, map(str.strip, text.split(","))):
            table, _, columns = item.rpartition(":")
            names = [column.strip().lower() for column in columns.split("/")]
            matches = match_of_server(table.strip())
            if matches is None or "." not in table or not all(names):
                raise FilterInvalid(rf"column rule {excerpt(item)!r} is not schema\.table:column/column")
            self._rules.append((matches, frozenset(names), protection))

    def _hashed(self, text: bytes) -> bytes:
        """Return hex(HMAC-SHA-256), from a copy that has read the key: hmac.digest reads it for each text."""
        made = self._keyed.copy()
        made.update(text)
        return made.hexdigest().encode()


NO_PRIVACY = Privacy()


def privacy_of(options: DecodeOptions, account: ColumnRules = NO_RULES) -> Privacy:
    """Return the protected columns of a stream.

    options: of the destination.
    account: the rules of the reader's account.
    Raises FilterInvalid.
    """
    own = ColumnRules(options.privacy_drop, options.privacy_hash, options.privacy_mask)
    return Privacy((own, account), options.privacy_key)


def _masked(text: bytes) -> bytes:
    return MASK
