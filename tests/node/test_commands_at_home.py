"""Commands with --conf ask the node that runs with this configuration, and nobody else."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from canal_ha.wire.scramble import secret_of
from lab import Node
from lab.certificates import Authority
from lab.node import PROGRAM
from tests.cli.test_login_addresses import listening

pytestmark = pytest.mark.real


def switch(node: Node, *options: str) -> str:
    """Ask to switch a destination that does not exist, and return the refusal."""
    done = subprocess.run(
        [PROGRAM, "source", "switch", "--destination", "nothing", "--conf", str(node.conf), *options],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode
    return done.stderr


def test_another_program_on_the_configured_port_does_not_get_the_operators_token() -> None:
    """The node listens elsewhere and is found there. When it is gone, the command refuses to ask anybody."""
    with listening() as (address, logins):
        node = Node({}, properties={"canal.admin.http.port": address.rpartition(":")[2]})
        with node:
            assert "nothing does not run on this node" in switch(node)
            kept = node.directory / "logs" / "canal" / "status.address"
            node.kill()
            assert kept.exists()
            assert "does not run any more" in switch(node)
            node.start()
            node.stop()
            assert "no node with this configuration runs here" in switch(node)
        assert logins == []


def test_commands_speak_tls_to_a_node_whose_status_speaks_it(tmp_path: Path) -> None:
    """They take the node's own certificate, which need not name 127.0.0.1, and no other one."""
    authority = Authority(tmp_path)
    certificate = authority.sign("canal1")
    secret = tmp_path / "password"
    secret.write_text("geheim\n")
    properties = {
        "canal.user": "boss",
        "canal.passwd": secret_of("geheim").hex(),
        "canal.tls.cert": str(certificate),
        "canal.tls.ports": "admin",
    }
    login = ("--user", "boss", "--password-file", str(secret))
    node = Node({}, properties=properties, login=("boss", "geheim"), tls_ca=str(authority.file))
    with node:
        assert "nothing does not run on this node" in switch(node, *login)
        assert "nothing does not run on this node" in switch(node, *login, "--tls-ca", str(authority.file))
        authority.sign("canal1")  # as if somebody else listened there: the same authority, another key
        assert "CERTIFICATE_VERIFY_FAILED" in switch(node, *login)
