"""The page in a real browser, headless Chromium, with a cluster of three nodes, real ZooKeeper and MariaDB."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from lab import MariaDB, Node, ZooKeeper, follow
from lab.gate import ACCOUNTS, PASSWORD
from lab.node import Client
from lab.ports import LOOPBACK, free_port
from lab.waiting import until

pytestmark = pytest.mark.long

PROPERTIES = {
    "canal.accounts.file": "../conf/accounts.toml",
    "canal.zookeeper.auth": "canal:x",
    "canal.zookeeper.session.timeout": "4000",
    "canal.auto.scan": "true",
    "canal.auto.scan.interval": "1",
    "canal.cluster.rebalance.delay": "-1",
}
SLOW_MS = 60_000.0
RULES = {"resultTypes": ["violations"], "rules": {"target-size": {"enabled": True}}}
"""For axe: all rules that it has by default, and a size for what is pressed."""
LOOKS = {  # width in pixels and color scheme
    "light": (1280, "light"),
    "dark": (1280, "dark"),
    "light, on a phone": (390, "light"),
    "dark, on a phone": (390, "dark"),
}


@contextmanager
def chromium() -> Iterator[Any]:
    """Start Debian's browser; see deploy/install.sh browser."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium")
    assert program, "chromium is missing: bash deploy/install.sh browser"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--disable-gpu", "--disable-dev-shm-usage"])
        try:
            yield browser
        finally:
            browser.close()


class Visitor:
    """A person with a browser of their own. problems: errors that the page's console shows."""

    def __init__(self, browser: Any, node: Node) -> None:
        self.problems: list[str] = []
        context = browser.new_context(base_url=f"http://127.0.0.1:{node.admin_port}")
        context.set_default_timeout(SLOW_MS)
        self.page = context.new_page()
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("console", self._heard)

    def must_be_accessible(self) -> None:
        """Fail with what axe finds on the page in every look. Updates of the page stop, so that it stays as it is."""
        from axe_playwright_python.sync_playwright import Axe

        updating = self.page.locator("#updating")
        if updating.count():
            updating.uncheck()
        for look, (width, scheme) in LOOKS.items():
            self.page.set_viewport_size({"width": width, "height": 900})
            self.page.emulate_media(color_scheme=scheme)
            found = Axe().run(self.page, options=RULES)
            assert not found.violations_count, f"{self.page.url}, {look}: {found.generate_report()}"

    def log_in(self, user: str) -> None:
        """Open the first page, and fill in the form to which it leads."""
        self.page.goto("/")
        self.page.get_by_label("Account").fill(user)
        self.page.get_by_label("Password").fill(PASSWORD)
        self.page.get_by_role("button", name="Log in").click()
        self.page.get_by_role("heading", name="Cluster").wait_for()

    def act(self, link: str, button: str, **fields: str) -> tuple[str, str]:
        """Follow the link of an action, fill in its form and confirm. Return the text of the plan and of the effect."""
        page = self.page
        page.get_by_role("link", name=link, exact=True).click()
        for name, value in fields.items():
            field = page.locator(f"#{name}")
            if field.evaluate("field => field.tagName") == "SELECT":
                field.select_option(value)
            else:
                field.fill(value)
        page.get_by_role("button", name="Go on").click()
        page.get_by_role("button", name=button, exact=True).wait_for()
        plan = page.locator("main").inner_text()
        page.get_by_role("button", name=button, exact=True).click()
        effect = page.locator("p.box").inner_text()
        return plan, effect

    def sees(self, text: str, where: str = "#live") -> None:
        """Wait until a part of the page shows a text, without loading the page again."""
        self._wait_for(self.page.locator(where).filter(has_text=text).first)

    def sees_no_more(self, text: str) -> None:
        """Wait until the page does not show a text any more."""
        self._wait_for(self.page.locator("#live").filter(has_not_text=text))

    def sees_owner(self, address: str) -> None:
        """Wait until the page of a destination shows its owner."""
        self._wait_for(self.page.locator("#live dl.facts div", has_text="Owner").filter(has_text=address))

    def _wait_for(self, part: Any) -> None:
        """Wait until a part of the page is there. Fail with what the page shows instead."""
        from playwright.sync_api import Error

        try:
            part.wait_for()
        except Error as error:
            shown = self.page.locator("body").inner_text()
            raise AssertionError(f"{error}\n{self.page.url} shows:\n{shown}\nproblems: {self.problems}") from None

    def _heard(self, message: Any) -> None:
        not_running = "409" in message.text and message.location.get("url", "").endswith("/lag")  # it has no curve yet
        if message.type == "error" and not not_running:
            self.problems.append(f"{message.text} {message.location}")


def owner_of(*nodes: Node) -> Node:
    """Wait until one of the nodes runs the destination, and return it."""
    return until(lambda: next((node for node in nodes if node.running() == {"example"}), None))


def reading(node: Node, database: str) -> Client:
    """Return a client with the account of the reader; it reads as a context manager."""
    password = node.conf / "password"
    password.write_text(PASSWORD)
    login = ("--user", "reader", "--password-file", str(password), "--filter", rf"{database}\..*")
    return Client(node.address, "example", *login)


@pytest.fixture
def nodes(zookeeper: ZooKeeper, mariadb: MariaDB, database: str) -> Iterator[list[Node]]:
    """Three nodes that could run one destination; the first one runs it."""
    mariadb.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.orders (id INT PRIMARY KEY)",
        f"CREATE TABLE {database}.items (id INT PRIMARY KEY)",
        f"INSERT INTO {database}.orders VALUES (1), (2), (3)",
    )
    hosts = f"{zookeeper.hosts}/browser{database}"
    with ExitStack() as stack:
        started: list[Node] = []
        for name in ("one", "two", "three"):
            node = Node(
                {"example": follow(mariadb)},
                zk_servers=hosts,
                properties=PROPERTIES,
                login=("admin", PASSWORD),
                name=name,
            )
            (node.conf / "accounts.toml").write_text(ACCOUNTS.replace("client_ids = [1001]\n", ""))
            stack.enter_context(node)
            if not started:
                until(lambda node=node: node.running() == {"example"})  # type: ignore[misc]
            started.append(node)
        yield started


def test_an_operator_works_with_the_page(nodes: list[Node], mariadb: MariaDB, database: str) -> None:
    """Fail-over, move, wrong and right configuration, snapshot and cursor, without a script error on any page."""
    one, two, three = nodes
    with chromium() as browser:
        visitor = Visitor(browser, three)
        visitor.log_in("admin")
        page = visitor.page
        visitor.sees("3 of 3 nodes answer")
        visitor.sees("at once", ".updates")

        # a fail-over shows by itself
        page.get_by_role("link", name="example").first.click()
        visitor.sees_owner(one.address)
        visitor.sees("at once", ".updates")
        page.evaluate("window.loadedOnce = true")
        one.kill()
        owner = owner_of(two, three)
        other = three if owner is two else two
        visitor.sees_owner(owner.address)
        visitor.sees("Changes of the owner (1)")
        assert page.evaluate("window.loadedOnce")

        # a move
        plan, effect = visitor.act("Move…", "Move", to=other.address)
        assert f"example moves from {owner.address} to {other.address}." in plan
        assert f"example moved from {owner.address} to {other.address}." in effect
        assert owner_of(two, three) is other

        # a configuration that cannot be used changes nothing and shows; the next one is taken over
        file = other.conf / "example" / "instance.properties"
        good = file.read_text()
        page.get_by_role("link", name="Back to example").click()
        file.write_text(good + "canal.instance.stream.max = many\n")
        visitor.sees("canal.instance.stream.max")
        assert owner_of(two, three) is other
        file.write_text(good + "canal.instance.stream.max = 17\n")
        visitor.sees_no_more("canal.instance.stream.max")
        until(lambda: "scan.starting" in other.log_file())
        owner = owner_of(two, three)  # the destination began anew, and either node could claim it
        visitor.sees_owner(owner.address)

        # a snapshot for a client that reads, and its cursor
        with reading(owner, database) as client:
            visitor.sees("Clients (1)")
            visitor.sees("reader from 127.0.0.1")
            plan, effect = visitor.act(
                "Snapshot…", "Snapshot", action="start", client_id="1001", tables=f"{database}.orders"
            )
            assert f"{database}.orders" in plan
            assert "is running" in effect or "is done" in effect
            ids = set()
            for row in client.rows():
                if row["table"] == "orders":
                    ids |= {int(row["after"]["id"])} if row.get("after") else set()
                if ids == {1, 2, 3}:
                    break
            page.get_by_role("link", name="Back to example").click()
            visitor.sees("Snapshots (1)")
        plan, effect = visitor.act("Cursor…", "Cursor", client_id="1001", action="set", to="latest")
        assert "client 1001 will be moved from" in plan
        assert "client 1001 was moved from" in effect

        # a pause and its end; another destination comes, and goes
        page.get_by_role("link", name="Back to example").click()
        plan, effect = visitor.act("Pause…", "Pause")
        assert "It stops on 127.0.0.1" in plan
        assert "It is paused." in effect
        page.get_by_role("link", name="Back to example").click()
        visitor.sees("paused")
        plan, effect = visitor.act("Resume…", "Resume")
        assert "It runs on 127.0.0.1" in effect
        page.get_by_role("link", name="Cluster").first.click()
        plan, effect = visitor.act("Add a destination…", "Add a destination", destination="more", text=good)
        assert "canal.instance.dbPassword = ***" in plan
        written = [each.conf / "more" / "instance.properties" for each in (two, three)]
        assert [f"{file}." in effect for file in written] == [True, True]
        assert [file.read_text() for file in written] == [f"{good.strip()}\n"] * 2
        page.get_by_role("link", name="Back to more").click()
        visitor.sees("running")
        plan, effect = visitor.act("Remove…", "Remove")
        assert [file.exists() for file in written] == [False, False]
        assert visitor.problems == []


def test_a_reader_is_refused(nodes: list[Node]) -> None:
    """A reader sees its destination and no action, and a path that it types is refused with the reason."""
    with chromium() as browser:
        visitor = Visitor(browser, nodes[0])
        visitor.log_in("reader")
        page = visitor.page
        page.get_by_role("link", name="example").first.click()
        visitor.sees_owner(nodes[0].address)
        assert page.get_by_role("link", name="Move…").count() == 0
        assert visitor.problems == []
        for path in ("/destinations/example/move", "/destinations/example/cursor", "/rebalance", "/log"):
            answer = page.goto(path)
            assert (answer.status, "account reader" in page.locator("main").inner_text()) == (403, True), path
        page.goto("/")
        page.get_by_role("button", name="Log out").click()
        page.get_by_label("Account").wait_for()


def test_axe_finds_no_violation_on_the_pages_of_a_cluster(nodes: list[Node], mariadb: MariaDB, database: str) -> None:
    """Log-in, overview, destination, its tables and log, every form with its steps, refusals: in every look."""
    one, two, three = nodes
    with chromium() as browser:
        visitor = Visitor(browser, three)
        page = visitor.page

        def look(path: str) -> None:
            page.goto(path)
            visitor.must_be_accessible()

        # before the log-in, and after a wrong password
        look("/login")
        page.get_by_label("Account").fill("admin")
        page.get_by_label("Password").fill("wrong")
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("alert").wait_for()
        visitor.must_be_accessible()
        look("/static/missing")

        # a node that is gone, a change of the owner, a client that reads, a snapshot, and an alarm
        visitor.log_in("admin")
        one.kill()
        owner = owner_of(two, three)
        with reading(owner, database) as client:
            page.goto("/destinations/example")
            visitor.sees("reader from 127.0.0.1")
            visitor.act("Snapshot…", "Snapshot", action="start", client_id="1001", tables=f"{database}.orders")
            next(iter(client.rows()))
            file = owner.conf / "example" / "instance.properties"
            good = file.read_text()
            file.write_text(good + "canal.instance.stream.max = many\n")
            page.goto("/destinations/example")
            visitor.sees("Changes of the owner (1)")
            visitor.sees("Snapshots (1)")
            visitor.sees("canal.instance.stream.max")
            page.locator("#curve canvas").wait_for()
            visitor.must_be_accessible()
            look("/")
            assert "gone" in page.locator("#live").inner_text()
            assert "Alarms (" in page.locator("#live").inner_text()
            look("/?q=nothing")
            file.write_text(good)

        # what is there to read
        look("/log")
        look("/destinations/example/log")
        look("/destinations/example/tables")
        look(f"/destinations/example/tables?table={database}.orders")
        look(f"/destinations/example/tables?table={database}.nothing")

        # each form: its fields, its plan, its effect
        def steps(path: str, button: str, **fields: str) -> None:
            page.goto(path)
            visitor.must_be_accessible()
            for name, value in fields.items():
                page.locator(f"#{name}").fill(value)
            page.get_by_role("button", name="Go on").click()
            page.get_by_role("button", name=button, exact=True).wait_for()
            visitor.must_be_accessible()
            page.get_by_role("button", name=button, exact=True).click()
            page.locator("p.box").wait_for()
            visitor.must_be_accessible()

        example = "/destinations/example"
        for path, button in (("source", "Switch the source"), ("snapshot", "Snapshot"), ("move", "Move")):
            steps(f"{example}/{path}", button, **({"tables": f"{database}.orders"} if path == "snapshot" else {}))
        steps("/rebalance", "Rebalance")
        steps(f"{example}/cursor", "Cursor", to="latest")
        steps(f"{example}/pause", "Pause")
        look(example)
        look(f"{example}/log")  # no node runs it
        steps(f"{example}/resume", "Resume")
        steps("/add", "Add a destination", destination="more", text=good)
        page.goto("/add")
        page.locator("#destination").fill("more")
        page.locator("#text").fill("no property")
        page.get_by_role("button", name="Go on").click()
        page.get_by_role("alert").wait_for()
        visitor.must_be_accessible()
        steps("/destinations/more/remove", "Remove")

        # pages that refuse
        look("/destinations/missing")
        reader = Visitor(browser, three)
        reader.log_in("reader")
        reader.must_be_accessible()
        for path in (example, f"{example}/move", "/log"):
            reader.page.goto(path)
            reader.must_be_accessible()


@pytest.mark.parametrize("mode", ["tcp", "kafka"])
def test_axe_finds_no_violation_on_the_pages_of_a_node_without_accounts(mode: str) -> None:
    """Many destinations, all with a source that does not answer; a pipeline into a Kafka that does not answer."""
    nowhere = f"{LOOPBACK}:{free_port()}"
    count = 120 if mode == "tcp" else 1
    settings = {
        "canal.instance.master.address": nowhere,
        "canal.instance.dbUsername": "canal",
        "canal.instance.dbPassword": "canal",
        "canal.mq.topic": "orders",
    }
    properties = {"canal.serverMode": mode, "kafka.bootstrap.servers": nowhere}
    names = [f"shop-{number}" for number in range(count)]
    with Node(dict.fromkeys(names, settings), properties=properties) as node, chromium() as browser:
        visitor = Visitor(browser, node)
        page = visitor.page
        for path in ("/", "/?page=2", "/login"):
            page.goto(path)
            visitor.must_be_accessible()
        page.get_by_label("Operator's token").fill((node.directory / "logs/canal/operator.token").read_text().strip())
        page.get_by_role("button", name="Log in").click()
        visitor.sees("source", "#live")
        visitor.must_be_accessible()
        page.goto(f"/destinations/{names[0]}")
        visitor.sees("Pipeline into Kafka" if mode == "kafka" else "Clients (0)")
        visitor.must_be_accessible()
