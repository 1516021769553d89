"""The page: what it shows, whom it lets in, and what its forms do."""

from __future__ import annotations

import json
import re
import tracemalloc
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from importlib.resources import files
from urllib.parse import urlencode

import pytest

from canal_ha.accounts import gate
from canal_ha.accounts.account import Accounts
from canal_ha.admin import templates
from canal_ha.admin.additions import TEXT_MOST
from canal_ha.admin.forms import EVERY_NODE, FORMS
from canal_ha.admin.routes import PAGES, body_most
from canal_ha.admin.sessions import IDLE_S
from canal_ha.instance.status import InstanceStatus, QueueStatus, ReaderStatus
from canal_ha.model.place import Place
from canal_ha.model.position import LogPosition
from canal_ha.model.privacy import Within
from lab.desk import EXAMPLE, NODE, OTHER_NODE, TOKEN, Browser, Desk, elements, hidden
from lab.gate import HTTP, PASSWORD, WHO

COOKIE = "canal_ha_8089"
VENDORED = {
    "htmx.min.js": "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717",
    "uplot.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uplot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}


def admin() -> Browser:
    browser = Browser(Desk())
    assert browser.log_in("admin").code == 303
    return browser


# ---- who gets in


def test_without_a_login_every_page_leads_to_the_log_in() -> None:
    """After it the browser is where it wanted to be. The cookie is out of reach of scripts and of other sites."""
    browser = Browser(Desk())
    answer = browser.get("/destinations/example")
    assert (answer.code, answer.headers["location"]) == (303, "/login?next=%2Fdestinations%2Fexample")
    answer = browser.log_in("admin")
    assert (answer.code, answer.headers["location"]) == (303, "/destinations/example")
    assert "example" in browser.get("/").text
    protocol = browser.desk.ask("GET /login HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(protocol.headers["set-cookie"].split("; "))
    line = json.loads(browser.desk.written[-1])
    assert (line["action"], line["result"], line["account"], line["details"]) == (
        "login",
        "ok",
        "admin",
        {"over": "page"},
    )


@pytest.mark.parametrize("target", ["//evil.example", "https://evil.example/", "/\\evil.example", "/nowhere", ""])
def test_the_log_in_leads_to_no_other_site(target: str) -> None:
    """An address that is no page of the node leads to the first one."""
    browser = Browser(Desk())
    fields = hidden(browser.get("/login").text)
    answer = browser.post("/login", {**fields, "next": target, "user": "admin", "password": PASSWORD})
    assert (answer.code, answer.headers["location"]) == (303, "/")


def test_a_wrong_password_is_refused_and_too_many_have_to_wait() -> None:
    """The page uses the lock-out of the gate. The refusal is in the audit."""
    browser = Browser(Desk())
    answer = browser.log_in("admin", "wrong")
    assert (answer.code, "auth failed for user:admin" in answer.text) == (401, True)
    assert json.loads(browser.desk.written[-1])["result"] == "refused"
    codes = [browser.log_in("admin", "wrong").code for _ in range(11)]
    assert codes[-1] == 429
    assert not len(browser.desk.sessions)


def test_log_ins_in_a_loop_push_no_line_out_of_the_audit() -> None:
    """The same log-in within a minute is counted."""
    browser = admin()
    for _ in range(5):
        assert browser.log_in("admin").code == 303
    assert [json.loads(line)["action"] for line in browser.desk.written].count("login") == 1


def test_a_log_in_form_of_another_site_is_refused() -> None:
    """Without the cookie of the form, or with another's proof, nobody is logged in."""
    desk = Desk()
    fields = hidden(Browser(desk).get("/login").text)
    given = {**fields, "user": "admin", "password": PASSWORD}
    assert Browser(desk).post("/login", given).code == 403
    other = Browser(desk)
    other.get("/login")
    assert other.post("/login", given).code == 403
    assert not len(desk.sessions)


def test_a_session_ends_with_the_log_out_the_idle_time_and_the_account() -> None:
    """After each of them the page leads to the log-in. A refresh of the page does not keep the session."""
    browser = admin()
    assert browser.post("/logout", {"csrf": "wrong"}).code == 403
    session = hidden(browser.get("/destinations/example/source").text)
    assert browser.post("/logout", session).code == 303
    assert browser.get("/").code == 303
    browser = admin()
    browser.desk.clock.advance(IDLE_S - 1)
    assert browser.get("/", **{"HX-Request": "true"}).code == 200
    browser.desk.clock.advance(2)
    answer = browser.get("/", **{"HX-Request": "true"})
    assert (answer.code, answer.headers["hx-redirect"]) == (200, "/login?next=%2F")
    browser = admin()
    browser.desk.accounts = Accounts(
        replace(each, secrets=()) for each in map(browser.desk.accounts.named, ("admin", "reader")) if each
    )
    assert browser.get("/").code == 401


def test_a_session_reads_the_api_and_never_acts_there() -> None:
    """Another site cannot make the browser act with the cookie."""
    browser = admin()
    assert browser.get("/api/v1/status").code == 200
    cookie = f"{COOKIE}={browser.cookies[COOKIE]}"
    body = '{"to": "other"}'
    answer = browser.desk.ask(
        f"POST /api/v1/destinations/example/source HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    )
    assert answer.code == 401
    assert not browser.desk.switched


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("route", PAGES, ids=lambda route: route.path)
def test_every_page_asks_the_gate(route: object, who: str) -> None:
    """Who may not make the request in the API may not open the page, with a header or with a cookie."""
    assert route in PAGES
    found = next(each for each in PAGES if each is route)
    path = found.path.replace("([^/]+)", "example").replace("([a-z.]+)", "page.css")
    if b"GET" not in found.methods:
        return
    desk = Desk()
    login = b64encode(f"{who}:{PASSWORD}".encode()).decode()
    header = {} if who == "nobody" else {"Authorization": f"Basic {login}"}
    with_cookie = Browser(desk)
    if who != "nobody":
        with_cookie.log_in(who)
    for answer in (Browser(desk).get(path, **header), with_cookie.get(path)):
        if who in HTTP[found.kind]:
            assert answer.code in (200, 409)  # the example has no instance, so its lag cannot be told
        else:
            assert answer.code == (303 if who == "nobody" else 403)


@pytest.mark.parametrize("host", ["evil.example", "10.0.0.1:8089"])
def test_the_name_of_another_machine_is_refused(host: str) -> None:
    """A page of another site that re-binds its name to loopback reads nothing, and gets no log-in form."""
    for path in ("/", "/login", "/static/page.css"):
        assert Browser(Desk(with_accounts=False), host).get(path).code == 403


def test_a_node_without_accounts_shows_and_acts_only_with_the_operators_token() -> None:
    """As in the API."""
    browser = Browser(Desk(with_accounts=False))
    assert browser.get("/").code == 200
    assert "log in" in browser.get("/destinations/example").text
    assert browser.get("/destinations/example/source").code == 403
    assert browser.get("/log").code == 403
    assert browser.log_in("", "", token="wrong").code == 401
    assert browser.log_in("admin").code == 401
    assert browser.log_in("", "", token=TOKEN).code == 303
    assert browser.get("/destinations/example/source").code == 200


# ---- what it shows


def test_the_page_shows_nodes_destinations_clients_and_alarms() -> None:
    """Each in a table with a caption."""
    browser = admin()
    text = browser.get("/").text
    assert re.findall(r"<caption>(.*?)</caption>", text) == ["Alarms (1)", "Nodes (1)", "Destinations (1 to 1 of 1)"]
    assert "it lags too far behind the source" in text
    text = browser.get("/destinations/example").text
    for shown in ("2.5 s", "2.0 KiB", "mysql-bin.000004:491", "waiting", "reader from 10.0.0.7", r"shop\..*"):
        assert shown in text
    assert browser.get("/destinations/nowhere").code == 404


def test_a_reader_sees_its_destinations_and_no_actions() -> None:
    """Others are not there, neither in the list nor by name."""
    browser = Browser(Desk(instances=[EXAMPLE, InstanceStatus("other", "db:2")]))
    browser.log_in("reader")
    text = browser.get("/").text
    assert "example" in text
    assert "other</a>" not in text
    assert browser.get("/destinations/other").code == 403
    assert "/destinations/example/source" not in browser.get("/destinations/example").text


def test_a_made_up_token_on_a_node_without_accounts_looks_at_no_cluster_anew() -> None:
    """Each one was a look at ZooKeeper and all nodes, and the picture of others was forgotten."""
    desk = Desk(with_accounts=False)
    pictures = set()
    for number in range(40):
        header = {"Authorization": f"Bearer made up {number}"}
        pictures.add(Browser(desk).get("/api/v1/cluster", **header).text)
    assert len(pictures) == 1


def test_many_destinations_are_found_and_shown_in_pages() -> None:
    """100 on a page, fewer than 200 kB with all files. A search and a state narrow them."""
    browser = Browser(Desk(instances=[replace(EXAMPLE, destination=f"shop-{number}") for number in range(250)]))
    browser.log_in("admin")
    answer = browser.get("/?page=3")
    assert "Destinations (201 to 250 of 250)" in answer.text
    assert 'rel="prev"' in answer.text
    assert 'rel="next"' not in answer.text
    assert "Destinations (1 to 11 of 11)" in browser.get("/?q=shop-24&page=99").text
    assert "Destinations (0 to 0 of 0)" in browser.get("/?state=released").text
    weight = len(browser.get("/").body)
    for path in set(re.findall(r'(?:src|href)="(/static/[^"]*)"', browser.get("/destinations/shop-1").text)):
        weight += len(browser.get(path).body)
    assert weight < 200_000


@pytest.mark.parametrize("name", ["nowhere.css", "a" * 300, "a" * 300 + ".css", "..", ".css", "htmx."])
def test_a_file_that_the_page_does_not_have_is_not_found(name: str) -> None:
    """A long name was an error of the operating system, and a page of Twisted's with code 500."""
    answer = Browser(Desk()).get(f"/static/{name}")
    assert (answer.code, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_names_of_files_that_strangers_make_up_fill_no_memory() -> None:
    """Every name was kept for ever; 0.8 GB a minute, without a login."""
    browser = Browser(Desk())
    browser.get("/static/page.css")
    tracemalloc.start()
    try:
        for length in range(1, 201):
            for end in (".css", ".js", ".svg", ".png", ""):
                assert templates.static("z" * length + end) is None
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 20_000


def test_names_from_outside_are_text() -> None:
    """Markup in a name or an error is shown, not obeyed."""
    evil = '"><script>alert(1)</script>'
    browser = Browser(Desk(instances=[replace(EXAMPLE, destination=evil, source_error=evil)]))
    browser.log_in("admin")
    for path in ("/", "/destinations/%22%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E", f"/?q={'%22%3E%3Cscript%3E'}"):
        answer = browser.get(path)
        assert answer.code == 200
        assert "<script>" not in answer.text


@pytest.mark.parametrize("path", ["/", "/destinations/example", "/login", "/destinations/example/snapshot", "/nowhere"])
def test_pages_load_nothing_from_elsewhere_and_run_nothing_inside(path: str) -> None:
    """Neither do they allow it, nor to be framed. No attribute has a style or a script."""
    browser = admin()
    answer = browser.get(path)
    if path != "/nowhere":
        policy = answer.headers["content-security-policy"]
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-frame-options"] == "DENY"
    for tag, given in elements(answer.text):
        assert tag != "style"
        assert not [name for name in given if name == "style" or name.startswith("on")]
        assert all((given.get(name) or "/").startswith(("/", "#")) for name in ("src", "href", "action", "hx-get"))
        assert tag != "script" or given.get("src")


def test_labels_name_every_field() -> None:
    """A screen reader says what to fill in."""
    browser = admin()
    for path in ("/", "/destinations/example/source", "/destinations/example/snapshot", "/destinations/example/move"):
        seen = elements(browser.get(path).text)
        labels = {given["for"] for tag, given in seen if tag == "label" and "for" in given} | {"updating"}
        fields = {given["id"] for tag, given in seen if tag in ("input", "select", "textarea") and "id" in given}
        assert fields == labels & fields


def test_vendored_files_are_the_released_ones() -> None:
    """htmx 2.0.11 and uPlot 1.6.32, as their packages of npm have them, with their licences."""
    static = files("canal_ha.admin") / "static"
    for name, expected in VENDORED.items():
        assert sha256((static / name).read_bytes()).hexdigest() == expected
    assert "Zero-Clause BSD" in (static / "htmx.LICENSE").read_text()
    assert "Leon Sorokin" in (static / "uplot.LICENSE").read_text()


# ---- what its forms do


def test_a_switch_is_confirmed_and_its_effect_shown() -> None:
    """The first form changes nothing. The audit has who did it."""
    browser = admin()
    fields = hidden(browser.get("/destinations/example/source").text)
    confirm = browser.post("/destinations/example/source", {**fields, "to": "standby"})
    assert (confirm.code, browser.desk.switched) == (200, [])
    done = browser.post("/destinations/example/source", hidden(confirm.text))
    assert (done.code, browser.desk.switched) == (200, [("example", "standby")])
    assert "It reads from db2:3306 now." in done.text
    line = json.loads(browser.desk.written[-1])
    assert (line["action"], line["result"], line["account"]) == ("switch", "ok", "admin")


def test_an_action_that_fails_says_why() -> None:
    """The reason is on the page and in the audit."""
    browser = admin()
    fields = hidden(browser.get("/destinations/example/source").text)
    confirm = browser.post("/destinations/example/source", {**fields, "to": "master"})
    done = browser.post("/destinations/example/source", hidden(confirm.text))
    assert (done.code, "reads from its master already" in done.text) == (409, True)
    assert json.loads(browser.desk.written[-1])["result"] == "failed"


@pytest.mark.parametrize("step", ["confirm", "do"])
def test_a_form_of_another_site_does_nothing(step: str) -> None:
    """Each form needs the proof that only pages of the session have, and a header alone is not enough."""
    browser = admin()
    body = {"step": step, "to": "standby", "body": '{"to": "standby"}'}
    assert browser.post("/destinations/example/source", body).code == 403
    assert browser.post("/destinations/example/source", {**body, "csrf": "x"}).code == 403
    assert not browser.desk.switched


def test_a_snapshot_is_started_on_the_page() -> None:
    """Tables come one a line; what cannot be read is said, and what was filled in stays."""
    browser = admin()
    path = "/destinations/example/snapshot"
    fields = {**hidden(browser.get(path).text), "action": "start", "client_id": "1001", "tables": "shop.orders\nshop.a"}
    wrong = browser.post(path, {**fields, "rows_per_s_most": "many"})
    assert (wrong.code, "is no number: many" in wrong.text, "shop.orders" in wrong.text) == (400, True, True)
    confirm = browser.post(path, fields)
    assert "shop.orders, shop.a" in confirm.text
    done = browser.post(path, hidden(confirm.text))
    assert (done.code, "The snapshot id1 is running." in done.text) == (200, True)


def test_the_page_names_tables_with_blanks_and_commas() -> None:
    """They were taken for several tables, although the label says one a line."""
    read = FORMS[gate.SNAPSHOT].body
    given = {"client_id": "1001", "tables": "shop.orders\r\n shop.a b,c \n\n", "leave_out": "shop.a b,c\nshop.x"}
    assert read({**given, "action": "start"})["tables"] == ["shop.orders", "shop.a b,c"]
    assert read({**given, "action": "resume"})["leave_out"] == ["shop.a b,c", "shop.x"]


def test_a_snapshot_on_the_page_has_the_limits_of_the_account_that_asks() -> None:
    """As one over HTTP has them."""
    browser = admin()
    everyone = browser.desk.accounts
    browser.desk.accounts = Accounts(replace(each, filter=r"shop\..*") for each in everyone)
    path = "/destinations/example/snapshot"
    fields = {**hidden(browser.get(path).text), "action": "start", "client_id": "1001", "tables": "shop.orders"}
    browser.post(path, hidden(browser.post(path, fields).text))
    assert browser.desk.snapshots_within == [Within(r"shop\..*")]


def test_a_tampered_confirmation_passes_the_gate_again() -> None:
    """The body of a confirmation is checked as that of the API is."""
    browser = admin()
    path = "/destinations/example/snapshot"
    fields = {**hidden(browser.get(path).text), "step": "do"}
    for body in ("", "{", "[]", '{"action": "start"}'):
        assert browser.post(path, {**fields, "body": body}).code == 400


def test_a_destination_is_paused_and_resumed_on_the_page() -> None:
    """The confirmation says what would happen. While it is paused, it has a page with that state."""
    desk = Desk()
    browser = Browser(desk)
    browser.log_in("admin")
    confirm = browser.post("/destinations/example/pause", hidden(browser.get("/destinations/example/pause").text))
    assert ("It stops on 10.0.0.1:11111." in confirm.text, desk.placements.asked) == (True, [])
    done = browser.post("/destinations/example/pause", hidden(confirm.text))
    assert ("It is paused." in done.text, desk.placements.asked) == (True, [("pause", "example")])
    line = json.loads(desk.written[-1])
    assert (line["action"], line["result"], line["account"]) == ("pause", "ok", "admin")
    again = browser.post("/destinations/example/pause", hidden(browser.get("/destinations/example/pause").text))
    assert (again.code, "example is paused already" in again.text) == (409, True)
    desk.instances.clear()
    desk.clock.advance(60)
    assert ">paused</span>" in browser.get("/destinations/example").text
    confirm = browser.post("/destinations/example/resume", hidden(browser.get("/destinations/example/resume").text))
    assert "It runs on the node that claims it first." in confirm.text
    desk.instances.append(EXAMPLE)
    assert "It runs on 10.0.0.1:11111 now." in browser.post("/destinations/example/resume", hidden(confirm.text)).text


def test_a_move_on_the_page_needs_a_node_that_stands_by() -> None:
    """The form says that there is none. A node that is not alive is refused with the reason."""
    browser = admin()
    fields = hidden(browser.get("/destinations/example/move").text)
    answer = browser.post("/destinations/example/move", fields)
    assert (answer.code, "No other node stands by" in answer.text) == (400, True)
    answer = browser.post("/destinations/example/move", {**fields, "to": "10.0.0.9:1"})
    assert (answer.code, "no node 10.0.0.9:1 is alive" in answer.text) == (409, True)
    confirm = browser.post("/destinations/example/move", {**fields, "to": OTHER_NODE})
    assert f"example moves from {NODE} to {OTHER_NODE}." in confirm.text
    done = browser.post("/destinations/example/move", hidden(confirm.text))
    assert f"example moved from {NODE} to {OTHER_NODE}. It took 0.25 s." in done.text
    assert browser.desk.placements.asked == [("move", "example", OTHER_NODE)]


def test_the_cluster_is_rebalanced_on_the_page() -> None:
    """The first page leads to the form for who may use it, and its confirmation names the moves."""
    browser = admin()
    assert 'href="/rebalance"' in browser.get("/").text
    assert "/rebalance" not in browser.get("/destinations/example").text
    confirm = browser.post("/rebalance", hidden(browser.get("/rebalance").text))
    assert (f"example moves from {NODE} to {OTHER_NODE}." in confirm.text, browser.desk.placements.asked) == (True, [])
    done = browser.post("/rebalance", hidden(confirm.text))
    assert (f"example moved from {NODE} to {OTHER_NODE}." in done.text, done.code) == (True, 200)
    assert browser.desk.placements.asked == [("rebalance",)]
    reader = Browser(Desk())
    reader.log_in("reader")
    assert "/rebalance" not in reader.get("/").text


def test_a_destination_is_added_on_the_page() -> None:
    """The confirmation has the file and the node. What cannot be read is said, and what was filled in stays."""
    browser = admin()
    assert 'href="/add"' in browser.get("/").text
    fields = {**hidden(browser.get("/add").text), "destination": "orders", "node": EVERY_NODE}
    wrong = browser.post("/add", fields)
    assert (wrong.code, "Fill in the name" in wrong.text, 'value="orders"' in wrong.text) == (400, True, True)
    fields["text"] = "canal.instance.master.address = db1:3306\r\ncanal.instance.dbUsername = canal"
    wrong = browser.post("/add", {**fields, "node": "10.0.0.9:1"})
    assert (wrong.code, "10.0.0.9:1 is none of the nodes that answer" in wrong.text) == (400, True)
    there = browser.post("/add", {**fields, "destination": "example"})
    assert (there.code, "Each of the nodes on which you can act here has example" in there.text) == (400, True)
    fields["text"] += "\r\ncanal.instance.dbPassword = geheim"
    confirm = browser.post("/add", fields)
    assert "canal.instance.dbPassword = ***" in confirm.text
    assert f"{NODE} will write conf/orders. Not on {OTHER_NODE}" in confirm.text
    assert ("db1:3306\ncanal.instance.dbUsername" in confirm.text, browser.desk.files.asked) == (True, [])
    done = browser.post("/add", hidden(confirm.text))
    assert (done.code, f"{NODE} wrote conf/orders." in done.text) == (200, True)
    assert browser.desk.files.asked == [("add", "orders", fields["text"].replace("\r", "") + "\n")]
    line = json.loads(browser.desk.written[-1])
    assert (line["action"], line["result"], line["destination"]) == ("add", "ok", "orders")
    reader = Browser(Desk())
    reader.log_in("reader")
    assert ("/add" in reader.get("/").text, reader.get("/add").code) == (False, 403)


def test_the_longest_text_of_a_destination_fits_into_the_forms_of_the_page() -> None:
    """A text of 20 KB was refused on the way, with JSON instead of a page: forms spell some characters longer."""
    for character in ("\n", '"', "#", "é", "€"):
        text = "canal.instance.master.address = db1:3306\ncanal.instance.dbUsername = canal\n#"
        text += character * ((TEXT_MOST - len(text) - 2) // len(character.encode())) + "x"
        browser = admin()
        fields = {**hidden(browser.get("/add").text), "destination": "long", "node": EVERY_NODE, "text": text}
        confirm = browser.post("/add", fields)
        assert confirm.code == 200, confirm.text[-2000:]
        for sent in (fields, hidden(confirm.text)):
            assert len(urlencode(sent)) < body_most(b"POST", b"/add")


def test_a_destination_is_removed_on_the_page() -> None:
    """The confirmation says where, and what is kept. Its cursors are never deleted on the page."""
    browser = admin()
    fields = {**hidden(browser.get("/destinations/example/remove").text), "node": NODE}
    confirm = browser.post("/destinations/example/remove", fields)
    assert f"{NODE} will remove it. Still on {OTHER_NODE}. Kept: its file." in confirm.text
    assert browser.desk.files.asked == []
    done = browser.post("/destinations/example/remove", hidden(confirm.text))
    assert (done.code, f"{NODE} removed it." in done.text) == (200, True)
    assert browser.desk.files.asked == [("remove", "example", False)]


@pytest.mark.parametrize("body", ['{"node": "10.0.0.9:1"}', '{"purge": 1, "node": "10.0.0.1:11111"}', "{}"])
def test_a_tampered_removal_is_refused(body: str) -> None:
    """The nodes of a confirmation are checked again."""
    browser = admin()
    fields = {**hidden(browser.get("/destinations/example/remove").text), "step": "do", "body": body}
    assert (browser.post("/destinations/example/remove", fields).code, browser.desk.files.asked) == (400, [])


def test_every_kind_of_page_is_known_to_the_gate() -> None:
    """A route with a kind that the gate does not name is a mistake."""
    assert {route.kind for route in PAGES} <= set(gate.NEEDS)


def test_a_cursor_is_shown_and_moved_after_a_dry_run() -> None:
    """The confirmation says from where to where. A place that is none changes nothing, and the message says what is."""
    browser = admin()
    page = browser.get("/destinations/example/cursor")
    assert "<code>mysql-bin.000004:491</code>" in page.text
    fields = {**hidden(page.text), "client_id": "1001", "action": "set"}
    wrong = browser.post("/destinations/example/cursor", {**fields, "to": "yesterday"})
    assert (wrong.code, "JOURNAL:OFFSET, gtid:SET" in wrong.text) == (409, True)
    confirm = browser.post("/destinations/example/cursor", {**fields, "to": "earliest"})
    assert "client 1001 will be moved from mysql-bin.000004:491 to mysql-bin.000004:4." in confirm.text
    assert browser.desk.cursors == []
    done = browser.post("/destinations/example/cursor", hidden(confirm.text))
    assert "client 1001 was moved from mysql-bin.000004:491 to mysql-bin.000004:4." in done.text
    assert browser.desk.cursors == [(1001, Place(end="earliest"))]
    line = json.loads(browser.desk.written[-1])
    assert (line["action"], line["result"], line["account"]) == ("cursor", "ok", "admin")


def test_a_cursor_is_deleted_after_a_dry_run() -> None:
    """A reader has no such form."""
    browser = admin()
    fields = {**hidden(browser.get("/destinations/example/cursor").text), "client_id": "1001", "action": "delete"}
    confirm = browser.post("/destinations/example/cursor", fields)
    assert "client 1001 at mysql-bin.000004:491 will be deleted." in confirm.text
    assert "was deleted" in browser.post("/destinations/example/cursor", hidden(confirm.text)).text
    assert browser.desk.cursors == [(1001, None)]
    reader = Browser(Desk())
    reader.log_in("reader")
    assert "/cursor" not in reader.get("/destinations/example").text


def test_the_page_shows_private_reads_and_the_pipeline_into_kafka() -> None:
    """What the node knows of them."""
    queue = QueueStatus("kafka:9092", LogPosition("mysql-bin.000004", 77), 5, 1234, 2.0, waits_for="Kafka's answer")
    readers = (ReaderStatus(7, "reader", "10.0.0.7", private=True),)
    browser = Browser(Desk(instances=[replace(EXAMPLE, queue=queue, readers=readers)]))
    browser.log_in("admin")
    text = browser.get("/destinations/example").text
    assert "reader from 10.0.0.7, a private read" in text
    assert "mysql-bin.000004:77" in text
    assert "Kafka&#39;s answer" in text
    assert "1,234" in text


def test_all_files_of_a_page_are_small() -> None:
    """A page with all its files is below 200 kB, on a slow line too."""
    page = admin().get("/destinations/example")
    names = {str(given.get("src") or given.get("href")) for _, given in elements(page.text)}
    paths = [name.split("/")[2].partition("?")[0] for name in names if "/static/" in name]
    sizes = [len(found[1]) for found in map(templates.static, paths) if found]
    assert len(sizes) == len(paths) == 6
    assert len(page.body) + sum(sizes) < 200_000


@pytest.mark.parametrize("line", [
    "canal.instance.dbPassword: geheim",
    "canal.instance.dbPassword geheim",
    "canal.instance.dbPassword = \\\n  geheim",
    r"canal.instance.dbPass\u0077ord = geheim",
    "canal.instance.tsdb.url = jdbc:mysql://u:geheim@h/db",
])  # fmt: skip
def test_a_confirmation_shows_no_password_in_any_form_of_a_properties_file(line: str) -> None:
    """The page asks before it adds a destination, perhaps with somebody looking on."""
    browser = admin()
    fields = {**hidden(browser.get("/add").text), "destination": "orders", "node": EVERY_NODE}
    text = f"canal.instance.master.address = db1:3306\n{line}\ncanal.instance.dbUsername = u"
    confirm = browser.post("/add", {**fields, "text": text})
    (shown,) = re.findall("<pre>(.*?)</pre>", confirm.text, re.DOTALL)
    assert ("geheim" in shown, "db1:3306" in shown, "***" in shown) == (False, True, True)
