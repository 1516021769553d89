"""Upstreams alone: which server it reads from. Probes, dumps and detecting threads are fakes."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.testing import MemoryReactorClock

from canal_ha.config.model import GroupMember, InstanceConfig, SourceConfig
from canal_ha.errors import CanalError, LocalProtocolError, MetaWriteFailed, SourceUnavailable, StandbyBehind
from canal_ha.instance.feed import FeedRequest
from canal_ha.instance.origin import KeepServers
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import EntryKind
from canal_ha.node import group
from canal_ha.node import upstreams as module
from canal_ha.node.upstreams import Upstreams
from canal_ha.source.connection.reactor_reads import ReactorReads
from canal_ha.source.positions.fingerprints import from_text, last_from_text
from canal_ha.source.server.dump import Upstream
from canal_ha.source.server.tap import Taps
from canal_ha.wire.proto import entry_protocol_pb2 as pb
from tests.segments import Item, segment

PATIENCE_S = 5.0
MASTER, STANDBY = "10.0.0.1:3306", "10.0.0.2:3307"
CONFIG = InstanceConfig(
    "example",
    SourceConfig("10.0.0.1", 3306),
    standby=SourceConfig("10.0.0.2", 3307),
    detecting_enable=True,
    detecting_heartbeat_ha=True,
    detecting_sql="SELECT 1",
    detecting_retry_threshold=1,
    server_id=77,
)


class FakeDump:
    """A dump that reads nothing and keeps its arguments."""

    def __init__(self, config: InstanceConfig, route: Callable[[], Upstream], **options: Any) -> None:
        self.route, self.options = route, options
        self.reroutes = 0
        self.decoded: LogPosition | None = None

    def reroute(self) -> None:
        """Count the call."""
        self.reroutes += 1

    def meets(self, server: str) -> bool:
        """Connect, let `server` answer, and return whether the route accepts it."""
        return self.route().met(server)


class FakeDetecting:
    """A detecting thread whose results the test sets."""

    def __init__(
        self,
        config: Callable[[], InstanceConfig],
        answered: Callable[[], None],
        failed: Callable[[InstanceConfig, CanalError], None],
        **options: object,
    ) -> None:
        self.config, self.answered, self.report = config, answered, failed
        self.started = self.stopped = False

    def failed(self, error: CanalError) -> None:
        """Report a failure of the server that is read now."""
        self.report(self.config(), error)

    def start(self) -> None:
        """Note the start."""
        self.started = True

    def stop(self) -> None:
        """Note the stop."""
        self.stopped = True


class Stage:
    """An Upstreams and its events.

    down: servers that no probe reaches.
    probing: called in every probe.
    keeping: called when a choice has become durable.
    """

    def __init__(self, patch: pytest.MonkeyPatch, config: InstanceConfig = CONFIG) -> None:
        self.told: list[tuple[str, dict[str, object]]] = []
        self.kept: list[tuple[tuple[str, ...], str]] = []
        self.full = False
        self.keeping: Callable[[], None] = lambda: None
        self.behind = ""
        self.had: list[LogPosition] = []
        self.down: set[str] = set()
        self.probed: list[tuple[str, bool]] = []
        self.probing: Callable[[], None] = lambda: None
        self.detecting: list[FakeDetecting] = []
        patch.setattr(module, "probe", self._probe)
        patch.setattr(module, "check_standing", self._check_standing)
        patch.setattr(module, "Dump", FakeDump)
        patch.setattr(module, "Detecting", self._detect)
        self.upstreams = Upstreams(config, self._tell)

    def _tell(self, name: str, /, **facts: object) -> None:
        self.told.append((name, facts))

    def keep(self, addresses: tuple[str, ...]) -> None:
        """Implement KeepServers. Note what is kept, and from where rows are read at that moment."""
        if self.full:
            raise MetaWriteFailed("no space left")
        self.kept.append((addresses, self.reads[0]))
        self.keeping()

    def _detect(self, *args: Any, **options: Any) -> FakeDetecting:
        self.detecting.append(FakeDetecting(*args, **options))
        return self.detecting[-1]

    def _check_standing(self, config: InstanceConfig, newest: object, read: list[LogPosition], opening: object) -> str:
        self.had = read
        if self.behind:
            raise StandbyBehind(self.behind)
        return ""

    def _probe(self, config: InstanceConfig, *, statement: bool, opening: Callable[[Any], None]) -> None:
        address = f"{config.master.host}:{config.master.port}"
        self.probed.append((address, statement))
        self.probing()
        opening(FakeConnection())
        if address in self.down:
            raise SourceUnavailable(f"{address}: Can't connect")

    @property
    def reads(self) -> tuple[str, str, int]:
        """The address, the role and the number of switches."""
        facts = self.upstreams.facts()
        return facts.address, facts.role, facts.switches

    @property
    def names(self) -> list[str]:
        """The names of the reported events."""
        return [name for name, _ in self.told]

    def dump(self, client_id: int = 1001, read: str = "") -> FakeDump:
        """Open a feed and return its dump."""
        feed: Any = self.upstreams.open_feed(request(client_id, read))
        assert isinstance(feed, FakeDump)
        return feed


class FakeConnection:
    """The connection that a probe opens."""

    def interrupt(self) -> None:
        """Do nothing."""


def request(client_id: int = 1001, read: str = "") -> FeedRequest:
    """Return the request for a feed from the beginning."""
    at = LogPosition("mysql-bin.000001", 4)
    return FeedRequest(client_id, read, "", at, lambda s: None, lambda v: None, lambda e, s: None)


def at(address: str, timestamp_ms: int = 1, server: str = "") -> LogPosition:
    """Return a cursor in the binlog of the server at this address."""
    host, _, port = address.partition(":")
    return LogPosition("mysql-bin.000001", 4, timestamp_ms=timestamp_ms, address=host, port=int(port), server=server)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Return a Stage with a master and a standby, which has begun at the master."""
    made = Stage(monkeypatch)
    made.upstreams.begin((), (), made.keep)
    return made


# ---- beginning


def test_the_newest_cursor_says_where_to_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Upstreams begins at the server of the newest cursor, and the detecting statement runs on that server."""
    stage = Stage(monkeypatch)
    stage.upstreams.begin((at(MASTER, 1), at(STANDBY, 2)), (), stage.keep)
    assert stage.reads == (STANDBY, "standby", 0)
    assert stage.detecting[0].started
    assert stage.detecting[0].config().master == CONFIG.standby


def test_without_a_statement_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """No detecting thread starts if the statement is blank or detecting is off."""
    for config in (replace(CONFIG, detecting_sql=" "), replace(CONFIG, detecting_enable=False)):
        stage = Stage(monkeypatch, config)
        stage.upstreams.begin((), (), stage.keep)
        assert stage.detecting == []


def test_a_begin_that_comes_after_the_stop_begins_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """begin() runs in a pool thread, and an instance that is given up does not wait for it."""
    stage = Stage(monkeypatch)
    stage.upstreams.close()
    with pytest.raises(LocalProtocolError, match="example is stopping"):
        stage.upstreams.begin((at(STANDBY),), (), stage.keep)
    assert stage.detecting == []
    assert stage.reads == (MASTER, "master", 0)


def test_a_stop_that_interrupts_the_detecting_statement_is_no_failure_of_the_source(stage: Stage) -> None:
    """Failures after a stop report no event: an operator who stops a node must not read that the source is lost."""
    stage.upstreams.begin((), (), stage.keep)
    stage.upstreams.close()
    for _ in range(CONFIG.detecting_retry_threshold + 1):
        stage.detecting[-1].failed(SourceUnavailable("interrupted"))
    assert stage.names == []


def test_a_kept_start_of_the_other_server_is_returned_unasked(stage: Stage) -> None:
    """The stream later finds the matching position on this server. A kept start of this server is checked on the
    server.
    """
    kept = at(STANDBY)
    assert stage.upstreams.start(kept) is kept
    stage.upstreams.close()
    with pytest.raises(SourceUnavailable, match="stop"):
        stage.upstreams.start(at(MASTER))


# ---- switching


def test_a_switch_tells_every_dump_and_goes_back_again(stage: Stage) -> None:
    """Every dump asks for its route again and gets the other server; ended dumps are not kept."""
    dump, gone = stage.dump(), stage.dump(1002)
    del gone
    gc.collect()
    assert len(stage.upstreams._dumps) == 1
    assert stage.upstreams.switch("standby", "it was wished") == STANDBY
    assert stage.reads == (STANDBY, "standby", 1)
    assert dump.reroutes == 1
    assert dump.route().config.master == CONFIG.standby
    assert stage.upstreams.switch("other", "back") == MASTER
    assert stage.reads == (MASTER, "master", 2)
    assert stage.probed == [(STANDBY, False), (MASTER, False)]
    name, facts = stage.told[0]
    assert (name, facts["old"], facts["new"], facts["reason"]) == ("source.switched", MASTER, STANDBY, "it was wished")


def test_a_switch_that_fails_changes_nothing(stage: Stage) -> None:
    """Server, role, count and dumps stay as they are, and the old server still accepts connections."""
    dump, before = stage.dump(), stage.upstreams._now
    stage.down.add(STANDBY)
    with pytest.raises(SourceUnavailable, match="Can't connect"):
        stage.upstreams.switch("standby", "it was wished")
    with pytest.raises(LocalProtocolError, match=f"reads from its master {MASTER} already"):
        stage.upstreams.switch("master", "it was wished")
    assert stage.reads == (MASTER, "master", 0)
    assert stage.upstreams._now is before
    before.stop_signal.opened(FakeConnection())  # type: ignore[arg-type]  # a FakeConnection
    assert dump.reroutes == 0
    assert stage.told == []


def test_a_switch_is_durable_before_it_is_announced(stage: Stage) -> None:
    """A node that dies right after the announcement leaves the destination on the new server."""
    stage.upstreams.switch("standby", "it was wished")
    assert stage.kept == [((STANDBY,), MASTER)]
    assert stage.names == ["source.switched"]
    stage.upstreams.switch("master", "it was wished")
    assert stage.kept[1:] == [((MASTER,), STANDBY)]


def test_a_switch_that_cannot_be_made_durable_changes_nothing(stage: Stage) -> None:
    """Nothing is announced; rows come from the old server, and the next attempt can succeed."""
    stage.full = True
    with pytest.raises(MetaWriteFailed):
        stage.upstreams.switch("standby", "it was wished")
    assert (stage.reads, stage.names) == ((MASTER, "master", 0), [])
    stage.full = False
    stage.upstreams.switch("standby", "it was wished")
    assert stage.reads == (STANDBY, "standby", 1)


@pytest.mark.parametrize("chosen", [MASTER, STANDBY])
def test_the_server_that_was_switched_to_counts_though_no_cursor_of_it_is_flushed(
    monkeypatch: pytest.MonkeyPatch, chosen: str
) -> None:
    """The next owner begins there, and not at the server of the newest cursor."""
    stage = Stage(monkeypatch)
    stage.upstreams.begin((at(MASTER if chosen == STANDBY else STANDBY),), (chosen,), stage.keep)
    assert stage.reads[0] == chosen


@pytest.mark.parametrize("standby", [True, False])
def test_a_choice_that_the_configuration_has_overruled_does_not_come_back(
    monkeypatch: pytest.MonkeyPatch, standby: bool
) -> None:
    """The choice of a server that is not configured is replaced, so that it does not count when it is again."""
    stage = Stage(monkeypatch, CONFIG if standby else replace(CONFIG, standby=None))
    stage.upstreams.begin((at(MASTER),), ("retired:3306",), stage.keep)
    assert stage.reads[0] == MASTER
    assert stage.kept == [((MASTER,), MASTER)]


@pytest.mark.parametrize("chosen", [(), ("",), (MASTER,)])
def test_a_choice_that_still_holds_is_not_written_again(stage: Stage, chosen: tuple[str, ...]) -> None:
    """A destination that never switched has no choice to keep."""
    stage.upstreams.begin((), chosen, stage.keep)
    assert stage.kept == []


def test_the_choices_of_a_group_are_kept_together() -> None:
    """Each source begins with its own choice, and a switch of one keeps those of the others."""

    class Source:
        def begin(self, cursors: tuple[LogPosition, ...], chosen: tuple[str, ...], keep: KeepServers) -> None:
            self.chosen, self.keep = chosen, keep

    sources: list[Any] = [Source(), Source()]
    kept: list[tuple[str, ...]] = []
    switches = group._Switches(CONFIG, sources)
    switches.begin((), ("a:1", ""), kept.append)
    assert [source.chosen for source in sources] == [("a:1",), ("",)]
    sources[1].keep(("b:2",))
    sources[0].keep(("c:3",))
    assert kept == [("a:1", "b:2"), ("c:3", "b:2")]


def test_each_source_of_a_group_has_its_own_last_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cursor joins their texts. The feed of a source begins with its own."""
    starts: list[LogPosition] = []

    class Source:
        def __init__(self, *_: object) -> None:
            pass

        def open_feed(self, request: FeedRequest) -> None:
            starts.append(request.start)

    monkeypatch.setattr(group, "Upstreams", Source)
    one, two = SourceConfig("one"), SourceConfig("two", 3307)
    origin = group.GroupOrigin(
        InstanceConfig("both", one, group=(GroupMember(one), GroupMember(two))), lambda *_, **__: None
    )
    cursor = replace(at("one:3306"), part=1).beside([replace(at("two:3307"), part=2)])
    remembered = origin.source_switch.remember(cursor)
    entry = pb.Entry(storeValue=pb.RowChange(eventType=pb.INSERT).SerializeToString()).SerializeToString()
    for part in (1, 2):
        whole = segment([Item(4, EntryKind.ROWS, entry), Item(5, EntryKind.END)], server_id=10 * part)
        own = replace(whole.source, server_id=10 * part)
        remembered.add_copies(remembered.copies([(replace(whole, part=part, source=own), 0, 2)]))
    cursor = replace(cursor, trail=remembered.trail(), origins=remembered.origins())
    origin.open_feed(replace(request(), start=cursor))
    for part, start in enumerate(starts, start=1):
        assert last_from_text(start.origins) == {10 * part: from_text(start.trail)[0]}
    again = origin.source_switch.remember(cursor)
    assert (again.trail(), again.origins()) == (cursor.trail, cursor.origins)


def test_without_a_standby_there_is_nothing_to_switch_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the key to set."""
    stage = Stage(monkeypatch, replace(CONFIG, standby=None))
    with pytest.raises(LocalProtocolError, match=r"set canal\.instance\.standby\.address"):
        stage.upstreams.switch("other", "it was wished")


def test_the_old_server_is_asked_nothing_after_a_switch(stage: Stage) -> None:
    """A new connection to the old server is refused."""
    old = stage.upstreams._now
    stage.upstreams.switch("standby", "it was wished")
    with pytest.raises(SourceUnavailable):
        old.stop_signal.opened(FakeConnection())  # type: ignore[arg-type]  # a FakeConnection


def test_a_failure_of_a_server_that_was_left_meanwhile_does_not_switch_back(stage: Stage) -> None:
    """If a person and the detecting thread ask for the same switch at once, it happens once."""
    inside, go_on = threading.Event(), threading.Event()

    def probing() -> None:
        inside.set()
        assert go_on.wait(PATIENCE_S)

    stage.detecting[0].failed(SourceUnavailable("no answer"))
    stage.probing = probing
    with ThreadPoolExecutor(2) as pool:
        wished = pool.submit(stage.upstreams.switch, "standby", "it was wished")
        assert inside.wait(PATIENCE_S)
        failed = pool.submit(stage.detecting[0].failed, SourceUnavailable("no answer"))
        wait_for_lock(stage)
        go_on.set()
        wished.result(PATIENCE_S)
        failed.result(PATIENCE_S)
    assert stage.reads == (STANDBY, "standby", 1)
    assert stage.names == ["source.detecting_failed", "source.switched"]


def test_a_failure_that_is_reported_after_a_switch_does_not_count_against_the_new_server(stage: Stage) -> None:
    """The statement failed on the old server, and the switch came before the report of it."""
    (detecting,) = stage.detecting
    old = detecting.config()
    stage.upstreams.switch("standby", "it was wished")
    for _ in range(10):
        detecting.report(old, SourceUnavailable("no answer"))
    assert stage.reads == (STANDBY, "standby", 1)
    assert stage.upstreams.facts().detecting_failures == 0
    assert stage.names == ["source.switched"]


def test_a_standby_that_lacks_what_was_read_is_not_taken_without_a_person(stage: Stage) -> None:
    """The log says so once. A person can switch to it; the destination switches by itself when it has caught up."""
    (detecting,) = stage.detecting
    stage.behind = "its replication has stopped"
    dump, other = stage.dump(), stage.dump(1002)
    dump.decoded, other.decoded = at(MASTER), at(STANDBY)
    for _ in range(6):
        detecting.failed(SourceUnavailable("no answer"))
    assert stage.reads == (MASTER, "master", 0)
    assert stage.had == [dump.decoded]
    assert stage.names.count("source.standby_behind") == 1
    detecting.answered()
    assert stage.names[-1] == "source.detected_again"
    stage.behind = ""
    for _ in range(2):
        detecting.failed(SourceUnavailable("no answer"))
    assert stage.reads == (STANDBY, "standby", 1)
    stage.behind = "again"
    stage.upstreams.switch("master", "it was wished")
    assert stage.reads == (MASTER, "master", 2)


def wait_for_lock(stage: Stage) -> None:
    """Wait until the second thread waits for the change in progress."""
    lock: Any = stage.upstreams._changing
    assert isinstance(lock, Watched)
    assert lock.waiting.wait(PATIENCE_S)


class Watched:
    """A lock that sets an event when a thread has to wait for it."""

    def __init__(self) -> None:
        self.waiting = threading.Event()
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self.waiting.set()
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


@pytest.fixture(autouse=True)
def watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every Upstreams a Watched lock."""
    real = Upstreams.__init__

    def made(self: Upstreams, *args: Any) -> None:
        real(self, *args)
        self._changing = Watched()  # type: ignore[assignment]  # it is used as a context alone

    monkeypatch.setattr(Upstreams, "__init__", made)


def test_a_switch_that_runs_when_the_destination_stops_changes_nothing(stage: Stage) -> None:
    """The switch fails. close() waits for it and leaves nothing open."""
    dump, inside, go_on = stage.dump(), threading.Event(), threading.Event()

    def probing() -> None:
        inside.set()
        assert go_on.wait(PATIENCE_S)

    stage.probing = probing
    with ThreadPoolExecutor(2) as pool:
        switching = pool.submit(stage.upstreams.switch, "standby", "it was wished")
        assert inside.wait(PATIENCE_S)
        closing = pool.submit(stage.upstreams.close)
        wait_for_lock(stage)
        go_on.set()
        with pytest.raises(SourceUnavailable, match="stop"):  # the probe may no longer open a connection
            switching.result(PATIENCE_S)
        closing.result(PATIENCE_S)
    assert stage.reads == (MASTER, "master", 0)
    assert dump.reroutes == 0
    assert stage.detecting[0].stopped
    with pytest.raises(CanalError, match="stop"):
        stage.upstreams.switch("standby", "it was wished")


@pytest.mark.parametrize("failed", [False, True])
def test_a_switch_that_is_durable_when_the_destination_stops_is_not_called_refused(stage: Stage, failed: bool) -> None:
    """The next owner begins with the new server, so the answer and the log say so. This node changes nothing more.

    failed: whether the detecting statement asked for the switch, not a person.
    """
    dump = stage.dump()
    stage.keeping = stage.upstreams.interrupt
    if failed:
        for _ in range(2):
            stage.detecting[0].failed(SourceUnavailable("no answer"))
    else:
        assert stage.upstreams.switch("standby", "it was wished") == STANDBY
    assert stage.kept == [((STANDBY,), MASTER)]
    assert [(facts["old"], facts["new"]) for name, facts in stage.told if name == "source.switched"] == [
        (MASTER, STANDBY)
    ]
    assert "source.lost" not in stage.names
    assert stage.reads == (MASTER, "master", 0)
    assert dump.reroutes == 0
    with pytest.raises(CanalError, match="stop"):
        stage.upstreams.switch("standby", "it was wished")


# ---- the detecting statement


def test_a_source_that_fails_too_often_is_left(stage: Stage) -> None:
    """The first failure is reported, the one beyond the threshold causes a switch, and the count starts again."""
    (detecting,) = stage.detecting
    detecting.failed(SourceUnavailable("no answer"))
    assert stage.upstreams.facts().detecting_failures == 1
    detecting.answered()
    detecting.answered()
    detecting.failed(SourceUnavailable("no answer"))
    assert stage.reads == (MASTER, "master", 0)
    detecting.failed(SourceUnavailable("no answer"))
    assert stage.reads == (STANDBY, "standby", 1)
    assert stage.probed == [(STANDBY, True)]
    assert stage.upstreams.facts().detecting_failures == 0
    assert stage.names == [
        "source.detecting_failed", "source.detected_again", "source.detecting_failed", "source.switched"
    ]  # fmt: skip


def test_failures_of_the_server_before_do_not_count_against_the_next(stage: Stage) -> None:
    """A switch resets the count of failures."""
    stage.detecting[0].failed(SourceUnavailable("no answer"))
    stage.upstreams.switch("standby", "it was wished")
    assert stage.upstreams.facts().detecting_failures == 0
    stage.detecting[0].failed(SourceUnavailable("no answer"))
    assert stage.reads == (STANDBY, "standby", 1)


@pytest.mark.parametrize(
    ("change", "action"),
    [
        ({"detecting_heartbeat_ha": False}, "heartbeatHaEnable is off"),
        ({"standby": None}, "no standby config, just do nothing"),
        ({}, f"the other server cannot be read either: {STANDBY}"),
    ],
)
def test_a_source_that_cannot_be_left_is_told_to_be_lost(
    monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], action: str
) -> None:
    """The event source.lost says why there is no switch."""
    stage = Stage(monkeypatch, replace(CONFIG, detecting_retry_threshold=0, **change))
    stage.down.add(STANDBY)
    stage.upstreams.begin((), (), stage.keep)
    stage.detecting[0].failed(SourceUnavailable("no answer"))
    assert stage.reads == (MASTER, "master", 0)
    name, facts = stage.told[-1]
    assert name == "source.lost"
    assert facts["alarm"] is True
    assert action in str(facts["action"])


# ---- another server under the address


def test_another_server_under_the_address_is_a_new_generation(stage: Stage) -> None:
    """The other server is reported once, though every dump meets it. The first server that answers is not an event."""
    first, second = stage.dump(1001), stage.dump(1002)
    assert first.meets("uuid-1")
    assert second.meets("uuid-1")
    old = first.route(), second.route()
    assert not old[0].met("uuid-2")
    assert not old[1].met("uuid-2")
    assert stage.names == ["source.answered_by_another"]
    assert (first.reroutes, second.reroutes) == (1, 1)
    assert stage.upstreams.facts().server == "uuid-2"
    assert first.meets("uuid-2")
    assert stage.upstreams.facts().server == "uuid-2"
    assert stage.reads == (MASTER, "master", 1)


def test_a_dump_that_connects_late_does_not_speak_for_the_server_that_is_read_now(stage: Stage) -> None:
    """A route from before a switch accepts no server. After close() a route accepts no second server."""
    dump = stage.dump()
    late = dump.route()
    stage.upstreams.switch("standby", "it was wished")
    assert not late.met("uuid-1")
    assert stage.upstreams.facts().server == ""
    stage.upstreams.close()
    now = dump.route()
    assert now.met("uuid-2")
    with pytest.raises(LocalProtocolError, match="stop"):
        now.met("uuid-3")


def test_positions_of_the_other_server_are_no_business_of_the_one_that_is_read(stage: Stage) -> None:
    """has() compares the identities of the servers if both are known, and their addresses otherwise."""
    assert stage.dump().meets("uuid-1")
    now = stage.upstreams._now
    assert now.has(at(MASTER))
    assert not now.has(at(STANDBY))
    assert now.has(at(STANDBY, server="uuid-1"))
    assert not now.has(at(MASTER, server="uuid-2"))
    assert now.has(LogPosition("mysql-bin.000001", 4))


def test_one_stream_alone_has_the_configured_slave_id(stage: Stage) -> None:
    """The first client's stream has it, also when it opens again; a private read never has it."""
    ids = [
        stage.dump(client_id, read).options["replica"].server_id
        for client_id, read in ((1001, "a read"), (1002, ""), (1001, ""), (1002, ""))
    ]
    assert [each == 77 for each in ids] == [False, True, False, True]
    assert stage.dump(1002, "a read").options["may_move"] is False
    assert stage.dump(1002).options["may_move"] is True


# ---- any order

STEPS = ["other", "master", "standby", "fail", "answer", "down", "up", "met 1", "met 2", "late met", "close"]


@given(steps=st.lists(st.sampled_from(STEPS), max_size=20))
def test_whatever_happens_role_and_address_belong_together(steps: list[str]) -> None:
    """Every counted switch is reported and reaches every dump. After close() nothing changes."""
    with pytest.MonkeyPatch.context() as patch:
        stage = Stage(patch)
        stage.upstreams.begin((), (), stage.keep)
        dump, closed = stage.dump(), False
        late = dump.route()
        for step in steps:
            before = stage.reads
            route = dump.route()
            try:
                if step in ("other", "master", "standby"):
                    stage.upstreams.switch(step, "it was wished")
                elif step == "fail":
                    stage.detecting[0].failed(SourceUnavailable("no answer"))
                elif step == "answer":
                    stage.detecting[0].answered()
                elif step in ("down", "up"):
                    stage.down = {MASTER, STANDBY} if step == "down" else set()
                elif step == "late met":
                    late.met("uuid-2")
                elif step.startswith("met"):
                    route.met(f"uuid-{step[-1]}")
                    late = route
                else:
                    stage.upstreams.close()
                    closed = True
            except CanalError:
                assert stage.reads == before
            assert not closed or stage.reads == before
            address, role, switches = stage.reads
            assert (address, role) in ((MASTER, "master"), (STANDBY, "standby"))
            changes = [name for name in stage.names if name in ("source.switched", "source.answered_by_another")]
            assert switches == dump.reroutes == len(changes)
        stage.upstreams.close()


@pytest.mark.parametrize(
    ("reactor", "shared", "follows"), [(True, True, True), (False, True, False), (True, False, False)]
)
def test_streams_that_the_reactor_must_not_read_follow_no_tap(
    monkeypatch: pytest.MonkeyPatch, *, reactor: bool, shared: bool, follows: bool
) -> None:
    """A tap is read by the reactor."""
    monkeypatch.setattr(module, "Dump", FakeDump)
    reactor_of_test: Any = MemoryReactorClock()
    reads = ReactorReads(reactor_of_test)
    config = replace(CONFIG, stream_reactor=reactor, stream_shared=shared)
    feed: Any = Upstreams(config, lambda name, /, **facts: None, None, reads, Taps(reads)).open_feed(request())
    assert (feed.options["taps"] is not None) == follows
    assert (feed.options["reads"] is not None) == reactor
