"""What an account sees of the snapshot of a client: conditions and names of tables can tell about rows. Reactor thread.

A condition holds values that somebody looks for. Together with the number of rows it tells whether they exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from canal_ha.accounts import gate
from canal_ha.accounts.account import Account
from canal_ha.decode.filters import TableFilter
from canal_ha.errors import FilterInvalid
from canal_ha.model.privacy import ANYTHING, NO_RULES, Within
from canal_ha.model.snapshot import HIDDEN, read, told

REASON_HIDDEN = "the account that asks does not see the reason; the log of the destination has it"

ROWS = "SUBSCRIPTION"


def shown_to(account: Account, destination: str, client_id: int, facts: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the facts of a snapshot as an account sees them.

    destination, client_id: whose stream gets the rows.
    facts: see SnapshotState.facts; there may be more.
    """
    refusals = (gate.refusal(account, kind, destination, client_id) for kind in (ROWS, gate.SNAPSHOT))
    return shown_within(account.within, facts, conditions=not all(refusals))


def shown_within(within: Within, facts: Mapping[str, Any], *, conditions: bool = True) -> Mapping[str, Any]:
    """Return the facts of a snapshot for somebody who may read no more than `within`.

    facts: see shown_to.
    conditions: whether the reader may read the rows of the client, or act on its snapshot.
    """
    conditions = conditions and within.privacy == NO_RULES
    every = (*facts["tables"], *facts["left_out"])
    names = {table: table if _accepts(within.filter, table) else HIDDEN for table in every}
    where = {
        table: text if conditions else HIDDEN
        for table, text in facts["where"].items()
        if names.get(table, HIDDEN) is not HIDDEN
    }
    if where == facts["where"] and HIDDEN not in names.values():
        return facts
    return {
        **facts,
        **{key: tuple(names[table] for table in facts[key]) for key in ("tables", "reading", "left_out")},
        **{key: facts[key] and REASON_HIDDEN for key in ("error", "failing") if key in facts},
        "where": where,
    }


def told_within(within: Within, stored: str) -> str:
    """Return a stored text of a snapshot as a client gets it on the data port, whose account reads within `within`."""
    state = read(stored)
    if state is None or within == ANYTHING:
        return told(stored)
    shown = shown_within(within, state.facts())
    return told(replace(state, tables=tuple(shown["tables"]), error=shown["error"]).text)


def _accepts(text: str, table: str) -> bool:
    if not text:
        return True
    schema, _, name = table.partition(".")
    try:
        return _filter(text).accepts(schema, name)
    except FilterInvalid:  # it takes too long
        return False


@lru_cache(maxsize=64)
def _filter(text: str) -> TableFilter:
    return TableFilter(text, "")
