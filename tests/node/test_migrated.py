"""canal's stock configuration, through `canal-ha migrate` into a node that continues at canal's cursor."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from lab import MySQL, Node
from lab.admin_peer import AdminPeer
from lab.node import PROGRAM
from lab.ports import free_port
from tests.node.following import following, read

pytestmark = pytest.mark.real

STOCK = Path(__file__).parents[1] / "config" / "stock"


def cursor_of_canal(mysql: MySQL) -> str:
    """Return the text of canal's meta.dat whose client 1001 has read everything so far."""
    (status,) = mysql.query("SHOW BINARY LOG STATUS")
    position = {
        "gtid": "",
        "included": False,
        "journalName": status["File"],
        "position": status["Position"],
        "serverId": 1,
        "timestamp": 1700000000000,
    }
    address = {"address": "127.0.0.1", "port": mysql.port}
    cursor = {"identity": {"slaveId": -1, "sourceAddress": address}, "postion": position}
    client = {"clientId": 1001, "destination": "example", "filter": ""}
    return json.dumps({"clientDatas": [{"clientIdentity": client, "cursor": cursor}], "destination": "example"})


def test_a_node_with_the_written_files_goes_on_where_canal_stopped(mysql: MySQL, database: str, tmp_path: Path) -> None:
    """The stock files need one line. Ports and the address of the database are those of this machine."""
    admin_port = free_port()
    node = Node({}, wait_for=("example",))
    deployer = tmp_path / "deployer"
    shutil.copytree(STOCK, deployer / "conf")
    main = deployer / "conf" / "canal.properties"
    ports = {"11111": node.port, "11112": node.metrics_port, "11110": admin_port}
    text = re.sub(r"(?<= = )(11111|11112|11110)$", lambda found: str(ports[found[1]]), main.read_text(), flags=re.M)
    main.write_text(f"{text}\ncanal.admin.http.port = {node.admin_port}\n")
    instance = deployer / "conf" / "example" / "instance.properties"
    instance.write_text(instance.read_text().replace("127.0.0.1:3306", mysql.address))
    mysql.execute(f"CREATE DATABASE {database}")
    mysql.execute(f"CREATE TABLE {database}.t (id int PRIMARY KEY)")
    (deployer / "conf" / "example" / "meta.dat").write_text(cursor_of_canal(mysql))
    mysql.execute(f"INSERT INTO {database}.t VALUES (7)")
    shutil.rmtree(node.conf)
    done = subprocess.run([PROGRAM, "migrate", deployer, "--to", node.conf], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "         write: canal.ip = 127.0.0.1\n" in done.stdout
    assert f"next: canal-ha check --conf {node.conf}\n" in done.stdout
    with node:
        with following(node, tables=rf"{database}\.t") as client:
            assert [row.after for row in read(client, 1)] == [{"id": 7}]
        with AdminPeer(admin_port) as console:
            assert console.log_in("admin", "") == (0, "")
            assert console.request("SERVER list") == (0, "example")
            assert console.request("SERVER stop")[0] == 403
