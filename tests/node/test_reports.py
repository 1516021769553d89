"""The reports of a node over HTTP, as far as an account may see them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from canal_ha.accounts import gate
from canal_ha.accounts.account import Account, AccountRole
from canal_ha.admin.guest import Guest
from canal_ha.errors import CanalError, LocalProtocolError, NotAllowed
from canal_ha.model.privacy import ColumnRules
from canal_ha.node.reports import reports_of
from canal_ha.server.audit import Actor
from tests.instance.origin import PlainOrigin
from tests.instance.test_regained import OneNode
from tests.instance.test_stream import now

ADMIN = Account("ops", roles=frozenset({AccountRole.ADMIN}), destinations=("*",))
LIMITED = Account(
    "shop",
    roles=frozenset({AccountRole.ADMIN}),
    destinations=("*",),
    filter=r"shop\..*",
    privacy=ColumnRules(hash=r"shop\.orders:customer"),
)
DEFINITION = "CREATE TABLE t (customer INT) PARTITION BY RANGE (customer) (PARTITION p VALUES LESS THAN (98143))"


def told(account: Account, table: str = "") -> dict[str, Any]:
    """Return the report of the tables of a source that has shop.orders, shop.items and other.t."""
    node = OneNode()
    node.claim()
    nothing = cast(Any, None)
    report = reports_of(nothing, nothing, node.embedded, nothing, Path())[gate.TABLES]
    asked = report("example", Guest(account, Actor()), {"table": table} if table else {})
    return now(cast(Any, asked))


def refusal(account: Account, table: str) -> CanalError:
    with pytest.raises(CanalError) as refused:
        told(account, table)
    return refused.value


@pytest.fixture(autouse=True)
def _definitions(monkeypatch: pytest.MonkeyPatch) -> None:
    existing = PlainOrigin.tables(cast(Any, None))
    monkeypatch.setattr(
        PlainOrigin, "definition", lambda self, schema, table: DEFINITION if (schema, table) in existing else None
    )


def test_an_account_sees_the_tables_that_its_filter_accepts() -> None:
    """The names of others are none of its business. A table outside the filter is like one that does not exist."""
    assert told(ADMIN)["tables"] == ["other.t", "shop.items", "shop.orders"]
    assert told(ADMIN, "other.t")["definition"] == DEFINITION
    assert told(LIMITED)["tables"] == ["shop.items", "shop.orders"]
    assert told(LIMITED, "shop.items")["definition"] == DEFINITION
    outside, none = refusal(LIMITED, "other.t"), refusal(LIMITED, "other.u")
    assert isinstance(outside, LocalProtocolError)
    assert str(outside).replace("other.t", "") == str(none).replace("other.u", "")


def test_an_account_sees_no_definition_of_a_table_whose_columns_it_may_not_see() -> None:
    """Partitions, defaults and checks of such a column tell values."""
    withheld = refusal(LIMITED, "shop.orders")
    assert isinstance(withheld, NotAllowed)
    assert "98143" not in str(withheld)
    assert "the account may not see all columns of shop.orders" in str(withheld)
    assert told(ADMIN, "shop.orders")["definition"] == DEFINITION
