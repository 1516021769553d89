"""What has changed between two readings of the accounts, by name, for the log and the audit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from canal_ha.accounts.account import Account

_KEYS = {"secrets": "passwords"}  # field -> key of the file, where they differ


@dataclass(frozen=True, slots=True)
class AccountChanges:
    """The accounts that a change is about. changed: with the keys that differ, as `shop (filter, client_ids)`."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]

    @property
    def facts(self) -> Mapping[str, str]:
        """The names by kind; a kind without names is left out."""
        lists = {"added": self.added, "removed": self.removed, "changed": self.changed}
        return {kind: ", ".join(names) for kind, names in lists.items() if names}


def changes(before: Iterable[Account], after: Iterable[Account]) -> AccountChanges:
    """Compare two readings."""
    old, new = ({account.name: account for account in accounts} for accounts in (before, after))
    return AccountChanges(
        tuple(name for name in new if name not in old),
        tuple(name for name in old if name not in new),
        tuple(f"{name} ({_keys(old[name], new[name])})" for name in new if name in old and new[name] != old[name]),
    )


def _keys(old: Account, new: Account) -> str:
    named = [field.name for field in fields(Account) if field.init]
    differing = (name for name in named if getattr(old, name) != getattr(new, name))
    return ", ".join(_KEYS.get(name, name) for name in differing)
