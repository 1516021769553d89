"""`canal-ha config diff`, asked of a running node."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from canal_ha.cli.main import group
from lab import MariaDB, Node, follow
from tests.waiting import until

pytestmark = pytest.mark.real

SCAN = {"canal.auto.scan": "true", "canal.auto.scan.interval": "0.1"}


def diff(node: Node, *arguments: str) -> tuple[int, Any]:
    """Run `canal-ha config diff --json` and return the exit code and the document."""
    result = CliRunner().invoke(group, ["config", "diff", "--conf", str(node.conf), "--json", *arguments])
    assert "hush" not in result.output + str(result.exception)
    return result.exit_code, json.loads(result.stdout) if result.stdout else str(result.exception)


def test_diff_compares_the_files_with_the_node(mariadb: MariaDB) -> None:
    """It shows what waits for a restart and what is refused; what the node has taken over is no difference.

    Nobody without the operator's token can read the configuration.
    """
    with Node({"example": follow(mariadb)}, properties=SCAN) as node:
        code, document = diff(node)
        assert (code, document["changes"]) == (0, [])
        assert document["not_compared"] == ["example: canal.instance.dbPassword"]
        main, instance = node.conf / "canal.properties", node.conf / "example" / "instance.properties"
        main.write_text(main.read_text() + "canal.user = eve\ncanal.passwd = hush\n")
        assert "canal.passwd = '***'" in diff(node)[1]
        main.write_text(main.read_text().replace("hush", "0" * 40) + "canal.instance.stream.max = 5\n")
        until(lambda: "scan.restart " in node.log_file(), what="the alarm")
        until(lambda: len(diff(node)[1]["changes"]) == 2, what="the new default in use")
        code, document = diff(node)
        assert code == 3
        user, passwd = document["changes"]
        assert (user["key"], user["running"]["value"], user["file"]["value"]) == ("canal.user", "", "eve")
        assert user["file"]["origin"] == f"{main}:{len(main.read_text().splitlines()) - 2}"
        assert (passwd["key"], passwd["file"]["value"], passwd["restart"]) == ("canal.passwd", "***", True)
        instance.write_text(instance.read_text() + "canal.instance.xa = no\n")
        code, document = diff(node, "--destination", "example")
        (change,) = document["changes"]
        assert (code, change["change"]) == (3, "cannot be used")
        assert "canal.instance.xa = 'no'" in change["reason"]
        code, refused = diff(node, "--url", f"127.0.0.1:{node.admin_port}")
        assert code == 1
        assert "operator.token" in refused
