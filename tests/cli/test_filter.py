"""`canal-ha filter test`: with names, and with the tables of a source."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from canal_ha.cli.main import group
from lab import MariaDB, follow

NAMES = "shop.orders,shop.items,hr.people"


def run(*arguments: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(group, ["filter", "test", *arguments])


def test_matching_tables_are_printed() -> None:
    """One a line on standard output, the count on standard error."""
    done = run(r"shop\..*", "--tables", NAMES)
    assert (done.exit_code, done.stdout) == (0, "shop.orders\nshop.items\n")
    assert "2 of 3 tables match" in done.stderr


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("orders", r"orders has no schema: a filter matches SCHEMA.TABLE as a whole; write shop\.orders"),
        ("nothing", r"write SCHEMA\.nothing"),
        (r"shop\\..*", r"doubled backslashes are for properties files; here write shop\..*"),
    ],
)
def test_a_filter_that_matches_nothing_is_an_error_with_a_hint(text: str, hint: str) -> None:
    """A client with it waited for ever."""
    done = run(text, "--tables", NAMES)
    assert (done.exit_code, done.stdout) == (1, "")
    assert hint in done.stderr


@pytest.mark.parametrize("options", [(), ("--tables", "a"), ("--tables", "a.b", "--conf", "c"), ("--conf", "c")])
def test_wrong_usage(options: tuple[str, ...]) -> None:
    """Either names, or a destination."""
    assert run("x", *options).exit_code == 2


@pytest.mark.real
def test_the_tables_of_a_source_with_its_own_filters(mariadb: MariaDB, database: str, tmp_path: Path) -> None:
    """The destination's exclude list holds for clients too."""
    mariadb.execute(f"CREATE DATABASE {database}", *(f"CREATE TABLE {database}.{name} (id int)" for name in "abc"))
    settings = follow(mariadb, {"canal.instance.filter.black.regex": rf"{database}\\.b"})
    (tmp_path / "example").mkdir()
    (tmp_path / "canal.properties").write_text("canal.destinations = example\n")
    lines = "".join(f"{key} = {value}\n" for key, value in settings.items())
    (tmp_path / "example" / "instance.properties").write_text(lines)
    done = run(rf"{database}\..*", "--conf", str(tmp_path), "--destination", "example")
    assert done.stdout.split() == [f"{database}.a", f"{database}.c"], done.stderr
    assert (
        "no destination other; its destinations: example"
        in run("x", "--conf", str(tmp_path), "--destination", "other").stderr
    )
