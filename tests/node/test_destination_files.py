"""Destinations that come to a node and go again, with a real scan; and what the node refuses before it writes."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from canal_ha.admin.additions import DestinationAdded, DestinationRemoved
from canal_ha.config.keys import KEYS
from canal_ha.config.kinds import path
from canal_ha.config.load import load_usable
from canal_ha.config.model import CanalConfig, InstanceConfig
from canal_ha.errors import PlacementRefused
from canal_ha.instance.embedded import Embedded
from canal_ha.node.destination_files import NodeFiles
from canal_ha.node.hosting import Hosting
from canal_ha.node.scanning import Scan
from canal_ha.server.audit import Audit
from tests.running_reactor import running_reactor
from tests.zookeeper.stage import on_reactor, reactor

NODE = "10.0.0.1:11111"
ADDRESS = "canal.instance.master.address = db:3306\n"


def refusal(work: Coroutine[Deferred[Any], Any, Any]) -> str:
    """Return the text of a refusal."""
    found: list[Any] = []
    Deferred.fromCoroutine(work).addErrback(found.append)
    found[0].trap(PlacementRefused)
    return str(found[0].getErrorMessage())


def files_of(conf: Path, **settings: Any) -> NodeFiles:
    config, clock = CanalConfig(conf, (), main_file=conf / "canal.properties", **settings), Clock()
    hosting = Hosting(config, clock, Embedded(), Audit(clock, lambda line: None))
    return NodeFiles(NODE, clock, hosting, lambda: config, tuple, lambda: None, None)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("../x", "is no name of a destination"),
        ("..", "is no name of a destination"),
        ("a b", "is no name of a destination"),
        ("a,b", "cannot be called"),
        (".hidden", "cannot be called"),
        ("Spring", "cannot be called"),
        ("canal", "has logs of its own"),
        ("audit", "has logs of its own"),
        ("${env:HOME}", "would be a placeholder"),
        ("x" * 129, "is no name of a destination"),
    ],
)
def test_a_name_that_is_no_directory_of_its_own_is_refused(tmp_path: Path, name: str, reason: str) -> None:
    """Neither an addition nor a removal leaves the configuration directory."""
    files = files_of(tmp_path)
    assert reason in refusal(files.add(name, "", dry_run=False))
    assert reason in refusal(files.remove(name, purge=True, dry_run=False))
    assert list(tmp_path.iterdir()) == []


def test_half_a_character_is_refused(tmp_path: Path) -> None:
    """JSON can say it, and no file can have it."""
    assert "is no UTF-8" in refusal(files_of(tmp_path).add("shop", "a = \ud800", dry_run=False))


def test_the_destinations_of_a_program_are_the_programs(tmp_path: Path) -> None:
    """A node without files of its own changes none."""
    files = files_of(tmp_path, given={"canal.port": "1"})
    assert "change its destinations in the program" in refusal(files.add("shop", "", dry_run=False))


class Site:
    """A node's configuration directory with a real scan of it, which begins and ends nothing but the list."""

    def __init__(self, directory: Path) -> None:
        running_reactor()
        self.conf = directory / "conf"
        self.data = directory / "data"
        self.main = self.conf / "canal.properties"
        self._scan: Scan | None = None

    def start(self, *lines: str, auto_scan: bool = True, interval_s: float = 0.1) -> None:
        """Write canal.properties, and begin to scan."""
        self.conf.mkdir(exist_ok=True)
        common = ("canal.ip = 127.0.0.1", f"canal.file.data.dir = {self.data}")
        scans = (f"canal.auto.scan = {str(auto_scan).lower()}", f"canal.auto.scan.interval = {interval_s}")
        self.main.write_text("".join(f"{line}\n" for line in (*common, *scans, *lines)))
        config, audit = load_usable(self.conf, (), {}), Audit(reactor)
        self.hosting = hosting = Hosting(config, reactor, Embedded(), audit)
        hosting.configured.update((each.destination, each) for each in config.destinations)

        async def begin(instance: InstanceConfig) -> None:
            hosting.configured[instance.destination] = instance

        async def end(destination: str) -> None:
            hosting.configured.pop(destination, None)

        self._scan = scan = Scan(config, reactor, hosting.configured, begin, end, audit, lambda config: None)
        self.files = NodeFiles(NODE, reactor, hosting, lambda: scan.current, lambda: scan.alarms, scan.hurry, None)

        async def started() -> None:
            scan.start(())

        on_reactor(started)

    def stop(self) -> None:
        """End the scan."""
        scan = self._scan

        async def stopped() -> None:
            if scan:
                scan.stop()

        on_reactor(stopped)

    def add(self, destination: str, text: str = ADDRESS, *, dry_run: bool = False) -> DestinationAdded:
        """See DestinationFiles."""
        return on_reactor(lambda: self.files.add(destination, text, dry_run=dry_run))

    def remove(self, destination: str, *, purge: bool = True, dry_run: bool = False) -> DestinationRemoved:
        """See DestinationFiles."""
        return on_reactor(lambda: self.files.remove(destination, purge=purge, dry_run=dry_run))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Yield a Site that is not started."""
    made = Site(tmp_path)
    yield made
    made.stop()


def written(*files: Path) -> None:
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("kept")


def refused(work: Callable[[], object]) -> str:
    with pytest.raises(PlacementRefused) as found:
        work()
    return str(found.value)


OF_SHOP = ("meta.dat", "parse.dat", "paused", "table_history.db", "table_history.db-wal", "1/table_history.db")


@pytest.mark.parametrize("auto_scan", [True, False])
def test_a_purge_finds_the_cursors_of_a_destination_that_was_removed_before(site: Site, auto_scan: bool) -> None:
    """They are in the data directory of the node, wherever that is. A later addition does not go on at them."""
    site.start(auto_scan=auto_scan)
    written(*(site.data / "shop" / name for name in OF_SHOP), site.conf / "shop" / "instance.properties.removed")
    plan = site.remove("shop", dry_run=True)
    assert (site.data / "shop" / "meta.dat").exists()
    done = site.remove("shop")
    assert plan == done
    assert done.deleted == (
        f"{site.data / 'shop'}: {', '.join(sorted(OF_SHOP))}",
        f"{site.conf / 'shop'}: instance.properties.removed",
    )
    assert done.kept == ()
    assert not (site.data / "shop").exists()
    assert not (site.conf / "shop").exists()
    assert "has no destination shop" in refused(lambda: site.remove("shop"))


def test_a_purge_deletes_only_what_the_node_made_for_the_destination(site: Site) -> None:
    """A directory of the same name can hold other files, as conf/pipeline does. The answer names what is left."""
    other = site.conf / "pipeline" / "orders.yaml"
    written(other, *(site.conf / "pipeline" / "many" / str(number) for number in range(3)))
    site.start()
    site.add("pipeline")
    written(site.data / "pipeline" / "1" / "table_history.db")
    plan = site.remove("pipeline", dry_run=True)
    done = site.remove("pipeline")
    assert plan.kept == done.kept == (f"{site.conf / 'pipeline'}: many, orders.yaml",)
    assert done.deleted[0] == f"{site.data / 'pipeline'}: 1/table_history.db"
    assert {path.name for path in (site.conf / "pipeline").iterdir()} == {"many", "orders.yaml"}
    assert not (site.data / "pipeline").exists()


def test_a_file_of_a_destination_does_not_choose_what_a_purge_deletes(site: Site, tmp_path: Path) -> None:
    """canal.file.data.dir of an instance file can name any directory: what is there is kept, and named."""
    away = tmp_path / "away"
    site.start(f"canal.admin.http.secrets = {away}")
    site.add("shop", f"{ADDRESS}canal.file.data.dir = {away}\n")
    written(away / "shop" / "paused", away / "shop" / "audit.log")
    for purge in (False, True):  # the second time it is known from the file that the first one left
        done = site.remove("shop", purge=purge)
        assert any(text.startswith(f"{away / 'shop'}: paused, because canal.file.data.dir") for text in done.kept)
    assert {path.name for path in (away / "shop").iterdir()} == {"paused", "audit.log"}
    assert not (site.conf / "shop").exists()


def test_a_history_that_a_purge_does_not_delete_is_named(site: Site, tmp_path: Path) -> None:
    """A directory of canal.instance.tsdb.dir, and a database. The answer does not show the login of the database."""
    site.start(f"canal.instance.tsdb.dir = {tmp_path}/history/${{canal.instance.destination}}")
    history = tmp_path / "history" / "shop" / "table_history.db"
    written(history)
    site.add("shop", f"{ADDRESS}canal.instance.tsdb.url = jdbc:mysql://root:secret@db1:3307/tsdb?password=secret\n")
    assert site.remove("shop", dry_run=True).kept == (
        f"the history of its tables in {history.parent}",
        "the history of its tables in MySQL, db1:3307/tsdb",
    )
    site.remove("shop")
    assert history.exists()


def test_a_link_is_refused_before_anything_is_deleted(site: Site, tmp_path: Path) -> None:
    """The dry run says so too, and the destination goes on."""
    written(tmp_path / "elsewhere" / "meta.dat")
    site.start()
    site.add("shop")
    site.data.mkdir()
    (site.data / "shop").symlink_to(tmp_path / "elsewhere")
    for dry_run in (True, False):
        assert "is a link" in refused(partial(site.remove, "shop", dry_run=dry_run))
    assert (tmp_path / "elsewhere" / "meta.dat").exists()
    assert (site.conf / "shop" / "instance.properties").exists()
    assert "shop" in site.hosting.configured


def test_a_relative_path_in_a_new_file_begins_at_that_file(site: Site) -> None:
    """The check reads the file that the node will read. What is written is what was sent."""
    site.start("canal.admin.http.secrets = ../conf/secrets")
    written(site.conf / "secrets" / "db.password")
    text = f"{ADDRESS}canal.instance.dbPassword = ${{file:../secrets/db.password}}\n"
    site.add("shop", text)
    assert (site.conf / "shop" / "instance.properties").read_text() == text
    assert site.hosting.configured["shop"].password == "kept"
    missing = refused(lambda: site.add("other", text.replace("db.password", "no.password")))
    assert f"{site.conf}/other/../secrets/no.password" in missing
    assert not (site.conf / "other").exists()


ELSEWHERE = "can only be the whole value of canal.instance.dbPassword"
HIDDEN = "can only name a key of canal-ha whose value is not hidden"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("canal.instance.master.address = ${file:/run/S3cret}", ELSEWHERE),
        ("canal.instance.filter.regex = (${file:/run/S3cret}", ELSEWHERE),
        ("canal.instance.gtidon = ${env:S3CRET}", ELSEWHERE),
        ("canal.instance.dbPassword = ${env:S3CRET}", ELSEWHERE),
        ("canal.instance.dbPassword = x${file:db}", ELSEWHERE),
        ("canal.instance.dbUsername = ${ file : /run/S3cret}", ELSEWHERE),
        ("canal.instance.dbUsername = $\\{file:/run/S3cret}", ELSEWHERE),
        ("canal.instance.dbUsername = ${canal.port:${file:/run/S3cret}}", ELSEWHERE),
        ("kind = file\ncanal.instance.dbUsername = ${${kind}:/run/S3cret}", HIDDEN),
        ("canal.instance.dbUsername = ${S3CRET}", HIDDEN),
        ("S3CRET = x\ncanal.instance.dbUsername = ${S3CRET}", HIDDEN),
        ("canal.instance.dbUsername = ${canal.zookeeper.auth}", HIDDEN),
        ("canal.instance.dbPassword = ${canal.zookeeper.auth}", HIDDEN),
        ("canal.instance.dbUsername = ${canal.instance.tsdb.dbUsername}", HIDDEN),
        ("canal.instance.dbPassword = ${file:/run/S3cret}", "can only read files in "),
        ("canal.instance.dbPassword = ${file:../secrets/../canal.properties}", "can only read files in "),
        ("canal.instance.dbPassword = ${file:../secrets/link/S3cret}", "can only read files in "),
    ],
)
def test_a_destination_that_comes_over_http_reads_no_secret_of_the_node(site: Site, line: str, reason: str) -> None:
    """Its address and its filters are in the status, and its password goes to a server of the sender's choice."""
    written(site.conf / "secrets" / "db")
    (site.conf / "secrets" / "link").symlink_to(site.conf.parent)
    (site.conf.parent / "S3cret").write_text("S3cret")
    site.start(
        "canal.admin.http.secrets = ../conf/secrets",
        "canal.zookeeper.auth = canal:S3cret",
        "canal.instance.tsdb.dbUsername = ${file:secrets/db}",
    )
    for dry_run in (True, False):
        text = refused(partial(site.add, "shop", f"{ADDRESS}{line}\n", dry_run=dry_run))
        assert reason in text
        assert text.startswith(f"{site.conf}/shop/instance.properties:")
        assert "write the file on the node yourself" in text
    assert not (site.conf / "shop").exists()


def test_a_destination_that_comes_over_http_reads_no_file_unless_the_node_names_a_directory(site: Site) -> None:
    """The refusal names the key. What is no secret can still come from another key."""
    site.start("canal.instance.dbUsername = reader")
    written(site.conf / "db")
    text = f"{ADDRESS}canal.instance.tsdb.dbUsername = ${{canal.instance.dbUsername}}-${{canal.instance.destination}}\n"
    assert "needs canal.admin.http.secrets in canal.properties" in refused(
        lambda: site.add("shop", f"{text}canal.instance.dbPassword = ${{file:../db}}\n")
    )
    site.add("shop", text)
    assert site.hosting.configured["shop"].tsdb_username == "reader-shop"


@pytest.mark.parametrize("line", [
    "canal.instance.tsdb.sslMode = REQUIRED\ncanal.instance.tsdb.ssl.cert = /etc/passwd",
    "canal.instance.tsdb.ssl.ca = ../conf/secrets/../canal.properties",
    "canal.instance.tsdb.ssl.key = ../conf/secrets/link/S3cret",
    "canal.instance.master.ssl.ca = /etc/passwd",
    "canal.instance.standby.ssl.key = ../../../etc/passwd",
    "canal.instance.master2.ssl.cert = /etc/passwd",
    "canal.instance.master.trustCertificateKeyStoreUrl = file:///etc/passwd",
    "canal.instance.standby3.clientCertificateKeyStoreUrl = file:/etc/passwd",
    "canal.instance.parser.directory = /root",
    "canal.instance.parser.schema = /etc/passwd",
    "canal.instance.tsdb.dir = /root",
    "canal.file.data.dir = /root",
    "my.directory = /root",
    "canal.instance.defaultDatabaseName = /etc/passwd\n"
    "canal.instance.parser.schema = ${canal.instance.defaultDatabaseName}",
    "canal.instance.tsdb.dir = ../conf/secrets/\\u0000",
    "kafka.ssl.keystore.location = /etc/passwd",
])  # fmt: skip
def test_a_destination_that_comes_over_http_opens_no_file_of_the_node(site: Site, line: str) -> None:
    """The reason told what a file holds, and a device without an end filled the memory, also in a dry run."""
    (site.conf / "secrets").mkdir(parents=True)
    (site.conf / "secrets" / "link").symlink_to(site.conf.parent)
    site.start("canal.admin.http.secrets = ../conf/secrets", "canal.instance.master.ssl.cert = ${my.directory:../x}/c")
    for dry_run in (True, False):
        text = refused(partial(site.add, "shop", f"{ADDRESS}{line}\n", dry_run=dry_run))
        assert "over HTTP, a file or directory can only be in " in text or "over HTTP, no file of Kafka" in text
    assert not (site.conf / "shop").exists()


@pytest.mark.parametrize("line", ["my.place = /etc", "my.account = ../../etc/passwd"])
def test_a_destination_that_comes_over_http_does_not_redirect_the_password_file_of_the_node(
    site: Site, line: str
) -> None:
    """canal.properties can make up the file of a password from other keys, which came from the text."""
    written(site.conf / "secrets" / "shop")
    site.start(
        "my.place = secrets", "my.account = ${my.place}", "canal.instance.dbPassword = ${file:${my.account}/shop}"
    )
    assert "has its value in the name of a file" in refused(lambda: site.add("shop", f"{ADDRESS}{line}\n"))
    site.add("shop")
    assert site.hosting.configured["shop"].password == "kept"


def test_a_destination_that_comes_over_http_names_files_in_the_directory_for_them(site: Site) -> None:
    """What canal.properties itself names can be repeated."""
    (site.conf / "secrets").mkdir(parents=True)
    (site.conf / "secrets" / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    data = "canal.instance.tsdb.dir = ../history/${canal.instance.destination}"
    site.start("canal.admin.http.secrets = ../conf/secrets", data)
    ca = f"file:{site.conf}/secrets/ca.pem"
    own = f"canal.instance.master.sslMode = VERIFY_CA\ncanal.instance.master.trustCertificateKeyStoreUrl = {ca}\n"
    site.add("shop", f"{ADDRESS}{own}{data}\n")
    assert site.hosting.configured["shop"].master.tls.ca_file == f"{site.conf}/secrets/ca.pem"


def test_a_destination_that_comes_over_http_names_no_file_unless_the_node_names_a_directory(site: Site) -> None:
    site.start()
    text = refused(lambda: site.add("shop", f"{ADDRESS}canal.instance.parser.schema = /etc/passwd\n"))
    assert "needs canal.admin.http.secrets in canal.properties" in text


def test_every_key_of_a_path_is_known_as_one() -> None:
    paths = {key.name for key in KEYS if key.kind.expected == path().expected}
    assert paths < {key.name for key in KEYS if key.names_file}


@pytest.mark.parametrize("url", ["jdbc:mysql://db/tsdb?user=tsdb&password=S3cret", "jdbc:mysql://tsdb:S3cret@db/tsdb"])
def test_a_destination_that_comes_over_http_gets_no_password_of_a_url(site: Site, url: str) -> None:
    """The key of the URL is shown, but not this value of it."""
    site.start(f"canal.instance.tsdb.url = {url}")
    line = "canal.instance.dbUsername = ${canal.instance.tsdb.url}\n"
    assert HIDDEN in refused(lambda: site.add("shop", f"{ADDRESS}{line}"))


def test_a_destination_that_comes_over_http_sends_no_password_to_another_table_history(site: Site) -> None:
    """The server in tsdb.url gets it. With its own password, the destination can have its own server."""
    site.start("canal.instance.tsdb.dbPassword = S3cret", "canal.instance.tsdb.sslMode = DISABLED")
    line = "canal.instance.tsdb.url = jdbc:mysql://db:1/tsdb\n"
    assert "this server would get the canal.instance.tsdb.dbPassword" in refused(
        lambda: site.add("shop", f"{ADDRESS}{line}")
    )
    site.add("shop", f"{ADDRESS}{line}canal.instance.tsdb.dbPassword = own\n")
    assert site.hosting.configured["shop"].tsdb_password == "own"


def test_an_addition_whose_list_cannot_be_written_can_be_tried_again(site: Site) -> None:
    """The file of the destination is not left behind."""
    site.start(auto_scan=False)
    obstacle = site.main.with_name("canal.properties.new")
    obstacle.mkdir()
    assert "Is a directory" in refused(lambda: site.add("shop"))
    assert not (site.conf / "shop").exists()
    obstacle.rmdir()
    assert site.add("shop").listed


def test_an_addition_does_not_wait_for_a_scan_that_comes_in_an_hour(site: Site) -> None:
    """The node waited for three intervals, and the command gave up after 60 s."""
    site.start(interval_s=3600)
    began = time.monotonic()
    site.add("shop")
    assert "shop" in site.hosting.configured
    site.remove("shop", purge=False)
    assert "shop" not in site.hosting.configured
    assert time.monotonic() - began < 15


def listed(site: Site) -> str:
    """Return the line of canal.properties that lists destinations."""
    (line,) = [line for line in site.main.read_text().splitlines() if line.startswith("canal.destinations")]
    return line


def test_a_second_addition_before_the_restart_keeps_the_first(site: Site) -> None:
    """It was refused, because the list in the file was not the one that the node had read at its start."""
    site.start(auto_scan=False)
    assert site.add("a").listed
    assert site.add("b").restart
    assert listed(site) == "canal.destinations = a,b"
    assert "has a already" in refused(lambda: site.add("a"))
    site.remove("a", purge=False)
    assert listed(site) == "canal.destinations = b"
    assert "has no destination a" in refused(lambda: site.remove("a", purge=False))


def test_a_removed_destination_can_be_added_again_before_the_restart(site: Site) -> None:
    """Until the restart it runs, although no file has it; a second removal says so."""
    written(site.conf / "a" / "instance.properties")
    (site.conf / "a" / "instance.properties").write_text(ADDRESS)
    site.start("canal.destinations = a", auto_scan=False)
    site.remove("a", purge=False)
    assert "goes on until the node restarts" in refused(lambda: site.remove("a", purge=False))
    assert "goes on until the node restarts" in refused(lambda: site.remove("a", purge=True))
    site.add("a")
    assert listed(site) == "canal.destinations = a"
    assert (site.conf / "a" / "instance.properties").read_text() == ADDRESS
    site.main.write_text("canal.port = many\n")
    assert "correct that first" in refused(lambda: site.add("b"))


@pytest.mark.real
@pytest.mark.parametrize("auto_scan", [True, False])
def test_a_node_that_may_not_write_its_configuration_says_what_to_do(
    site: Site, auto_scan: bool, tmp_path: Path
) -> None:
    """So does the dry run. The error has no path of a temporary directory."""
    root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    written(site.conf / "shop" / "instance.properties")
    (site.conf / "shop" / "instance.properties").write_text(ADDRESS)
    site.start("canal.destinations = shop", auto_scan=auto_scan)
    subprocess.run([*root, "mount", "--bind", str(site.conf), str(site.conf)], check=True)
    try:
        subprocess.run([*root, "mount", "-o", "remount,bind,ro", str(site.conf)], check=True)
        file = site.conf / "new" / "instance.properties"
        for dry_run in (True, False):
            added = refused(partial(site.add, "new", dry_run=dry_run))
            assert added.startswith(f"the node may not write {site.conf} (Read-only file system)")
            assert f"write {file} yourself" in added
            assert ("canal.auto.scan = true" if auto_scan else "restart the node") in added
            removed = refused(partial(site.remove, "shop", purge=False, dry_run=dry_run))
            assert removed.startswith(f"the node may not write {site.conf}")
            assert "remove the files of shop" in removed
    finally:
        subprocess.run([*root, "umount", "--lazy", str(site.conf)], check=True)
    assert "shop" in site.hosting.configured
    assert not (site.conf / "new").exists()
