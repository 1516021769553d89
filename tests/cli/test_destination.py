"""The file of a new destination, as `canal-ha destination add` sends it."""

from __future__ import annotations

import javaproperties
import pytest
from click import UsageError

from canal_ha.cli import destination
from canal_ha.cli.instance_template import TEMPLATE, template
from canal_ha.config import keys


def test_what_is_set_wins_over_the_file() -> None:
    """A backslash is sent as it was typed."""
    text = template("a.b = 1\nc = 2", ["a.b = 3", r"filter=shop\..*"])
    assert javaproperties.loads(text) == {"a.b": "3", "c": "2", "filter": r"shop\..*"}
    with pytest.raises(UsageError, match="is not KEY=VALUE"):
        template("", ["word"])


def test_the_template_names_keys_that_exist() -> None:
    """Without a line of its own it would be no destination, so one is asked for."""
    named = [line.lstrip("#").partition(" = ")[0] for line in TEMPLATE.splitlines() if not line.startswith("# ")]
    assert set(named) <= set(keys.BY_NAME)
    assert javaproperties.loads(TEMPLATE) == {}
    assert javaproperties.loads(template(None, ["canal.instance.master.address=db:1"])) == {
        "canal.instance.master.address": "db:1"
    }
    with pytest.raises(UsageError, match="give --file"):
        template(None, [])


@pytest.mark.parametrize(
    ("runs_on", "stand_by", "preferred", "shown"),
    [
        ("a", ["b"], ["a", "b"], "-"),
        ("a", ["b"], ["b"], "b"),
        ("", ["a", "b"], ["a", "b"], "-"),
        ("", ["a", "b"], ["a"], "a"),
        ("", [], [], "-"),
    ],
)
def test_a_destination_without_an_owner_prefers_no_node_unless_somebody_says_so(
    runs_on: str, stand_by: list[str], preferred: list[str], shown: str
) -> None:
    """A paused or lazy one seemed to prefer all nodes."""
    placed = {"runs_on": runs_on, "stand_by": stand_by, "preferred": preferred}
    assert destination._preferred(placed) == shown
