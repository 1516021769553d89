"""The instance.properties of a new destination, from a template or a file and the lines of --set."""

from __future__ import annotations

from collections.abc import Sequence

import click
import javaproperties

TEMPLATE = """\
# The server to read: host:port.
#canal.instance.master.address = db1:3306
# Its account, with the rights REPLICATION SLAVE, REPLICATION CLIENT and SELECT.
#canal.instance.dbUsername = canal
# A password file is in the directory canal.admin.http.secrets of the node.
#canal.instance.dbPassword = ${file:/etc/canal-ha/secrets/db.password}
# Tables, as regular expressions of schema\\\\.table separated by commas.
#canal.instance.filter.regex = .*\\\\..*
# Another server with the same rows, to switch to.
#canal.instance.standby.address = db2:3306
"""


def template(text: str | None, sets: Sequence[str]) -> str:
    """Return the text of the file. The last line of a key wins, so what is set comes last.

    text: of the given file; None for the template.
    sets: KEY=VALUE of each line to add.
    Raises UsageError.
    """
    if text is None and not sets:
        raise click.UsageError("give --file, or --set canal.instance.master.address=HOST:PORT and what else it needs")
    lines = []
    for each in sets:
        key, equals, value = each.partition("=")
        if not equals or not key.strip():
            raise click.UsageError(f"--set {key} is not KEY=VALUE")
        lines.append(javaproperties.join_key_value(key.strip(), value.strip(), separator=" = ") + "\n")
    start = TEMPLATE if text is None else text
    return start + ("" if start.endswith("\n") or not start else "\n") + "".join(lines)
