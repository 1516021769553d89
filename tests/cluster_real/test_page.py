"""The page of real nodes in a real cluster: it shows what runs on another node, and a fail-over."""

from __future__ import annotations

import json
import re
from http.cookiejar import CookieJar
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, build_opener

import pytest

from canal_ha.admin.forms import EVERY_NODE
from lab import MySQL, ZooKeeper
from lab.desk import hidden
from lab.gate import ACCOUNTS, PASSWORD
from lab.node import Node, follow
from lab.waiting import until
from tests.admin.test_openapi import check

ANSWER_MOST_S = 30.0


class Browser:
    """Reads the page of a node, and keeps its cookies."""

    def __init__(self, node: Node) -> None:
        self._base = f"http://127.0.0.1:{node.admin_port}"
        self._opener = build_opener(HTTPCookieProcessor(CookieJar()))

    def open(self, path: str, fields: dict[str, str] | None = None) -> str:
        """Return a page, also one that tells of an error. fields: of a form to send."""
        try:
            data = None if fields is None else urlencode(fields).encode()
            with self._opener.open(self._base + path, data, ANSWER_MOST_S) as answer:
                return str(answer.read().decode())
        except HTTPError as error:
            return error.read().decode()

    def json(self, path: str) -> Any:
        """Return a document."""
        return json.loads(self.open(path))


@pytest.mark.real
def test_the_page_of_one_node_shows_and_steers_what_runs_on_another(mysql: MySQL, database: str) -> None:
    """Figures, lag, tables and refusals come from the owner, with the rights of who looks. A killed node is gone."""
    mysql.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.orders (id INT PRIMARY KEY)")
    properties = {
        "canal.accounts.file": "../conf/accounts.toml",
        "canal.zookeeper.auth": "canal:x",
        "canal.zookeeper.session.timeout": "4000",
    }
    destinations = {"example": follow(mysql)}
    with ZooKeeper() as zookeeper:
        nodes = [
            Node(destinations, zk_servers=zookeeper.hosts, properties=properties, login=("admin", PASSWORD), name=name)
            for name in ("owner", "other")
        ]
        for node in nodes:
            (node.conf / "accounts.toml").write_text(ACCOUNTS)
        owner, other = nodes
        with owner:
            until(lambda: owner.running() == {"example"})
            with other:
                browser = Browser(other)
                form = hidden(browser.open("/"))
                browser.open("/login", {**form, "user": "admin", "password": PASSWORD})
                until(lambda: "2</b> of 2 nodes answer" in browser.open("/"))
                text = browser.open("/destinations/example")
                assert f"<dd>127.0.0.1:{owner.port}</dd>" in text
                assert mysql.address in text
                assert browser.json("/destinations/example/lag") == {"destination": "example", "streams": []}
                assert f"{database}.orders" in browser.open("/destinations/example/tables")
                assert "CREATE TABLE" in browser.open(f"/destinations/example/tables?table={database}.orders")
                assert "instance" in browser.open("/destinations/example/log")
                assert "admin.listening" in browser.open("/log")
                confirm = browser.open(
                    "/destinations/example/source", hidden(browser.open("/destinations/example/source"))
                )
                done = browser.open("/destinations/example/source", hidden(confirm))
                assert re.search(r'role="alert">127\.0\.0\.1:\d+: .*standby', done)
                cluster = browser.json("/api/v1/cluster")
                check("/api/v1/cluster", 200, cluster)
                assert [each["state"] for each in cluster["nodes"]] == ["up", "up"]
                owner.kill()
                until(lambda: browser.json("/api/v1/cluster")["changes"] or None, seconds=30)
                cluster = browser.json("/api/v1/cluster")
                check("/api/v1/cluster", 200, cluster)
                assert {each["address"]: each["state"] for each in cluster["nodes"]} == {
                    f"127.0.0.1:{owner.port}": "gone",
                    f"127.0.0.1:{other.port}": "up",
                }
                (change,) = cluster["changes"]
                assert (change["before"], change["after"]) == (f"127.0.0.1:{owner.port}", f"127.0.0.1:{other.port}")
                check("/api/v1/status", 200, browser.json("/api/v1/status"))


@pytest.mark.real
def test_the_page_adds_a_destination_to_every_node_and_removes_it(mysql: MySQL) -> None:
    """Both nodes get the file and run or stand by for it. Its removal takes it from both, in good order."""
    properties = {
        "canal.accounts.file": "../conf/accounts.toml",
        "canal.zookeeper.auth": "canal:x",
        "canal.auto.scan": "true",
        "canal.auto.scan.interval": "1",
    }
    with ZooKeeper() as zookeeper:
        nodes = [
            Node({}, zk_servers=zookeeper.hosts, properties=properties, login=("admin", PASSWORD), name=name)
            for name in ("one", "two")
        ]
        for node in nodes:
            (node.conf / "accounts.toml").write_text(ACCOUNTS)
        one, two = nodes
        with one, two:
            browser = Browser(two)
            browser.open("/login", {**hidden(browser.open("/")), "user": "admin", "password": PASSWORD})
            until(lambda: "2</b> of 2 nodes answer" in browser.open("/"))
            text = "\n".join(f"{key} = {value}" for key, value in follow(mysql).items())
            fields = {**hidden(browser.open("/add")), "destination": "late", "node": EVERY_NODE, "text": text}
            refused = browser.open("/add", {**fields, "text": f"{text}\ncanal.instance.memory.buffer.size = some"})
            assert "canal.instance.memory.buffer.size" in refused
            assert not any((node.conf / "late").exists() for node in nodes)
            done = browser.open("/add", hidden(browser.open("/add", fields)))
            assert " wrote " in done
            assert all((node.conf / "late" / "instance.properties").exists() for node in nodes)
            until(lambda: one.running() | two.running() == {"late"})
            path = "/destinations/late/remove"
            until(lambda: one.address in browser.open("/destinations/late"))
            until(lambda: two.address in browser.open("/destinations/late"))
            confirm = browser.open(path, {**hidden(browser.open(path)), "node": EVERY_NODE})
            assert " removed it." in browser.open(path, hidden(confirm))
            until(lambda: not one.running() | two.running())
            assert not any((node.conf / "late" / "instance.properties").exists() for node in nodes)


@pytest.mark.real
@pytest.mark.parametrize("frozen", [False, True], ids=["stopped", "frozen"])
def test_the_page_never_answers_once_zookeeper_is_away(frozen: bool) -> None:
    """Somebody looked shortly before. The next looks tell the problem, and show the cluster soon after it is over."""
    with ZooKeeper() as zookeeper, Node({}, zk_servers=zookeeper.hosts) as node:
        browser = Browser(node)

        def cluster() -> Any:
            return browser.json("/api/v1/cluster")

        until(lambda: cluster()["nodes"] or None)
        assert cluster()["problem"] == ""
        if frozen:
            zookeeper.pause()
        else:
            zookeeper.stop()
        problem = until(lambda: cluster()["problem"] or None, seconds=30)
        assert zookeeper.hosts in problem
        assert cluster()["problem"]
        if frozen:
            zookeeper.resume()
        else:
            zookeeper.start()
        until(lambda: cluster()["problem"] == "" and len(cluster()["nodes"]) == 1, seconds=30)
