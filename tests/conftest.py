"""Real servers for tests marked `real`, started on first use and shared by the whole run.

    @pytest.mark.real
    def test_rows_arrive(source_server: SqlServer, database: str, zookeeper: ZooKeeper) -> None:
        source_server.execute(f"CREATE DATABASE {database}")

Fixtures, all of session scope except `database`:

    mysql          MySQL      9.x, row metadata FULL, GTIDs on
    mariadb        MariaDB    10.11, row metadata FULL
    source_server  SqlServer  MySQL or MariaDB: the test runs once with each
    zookeeper      ZooKeeper  one node; `.hosts` is the connection string
    ensemble       Ensemble   three nodes; `.hosts`, `.nodes`, `.leader()`, `.followers()`
    kafka          Kafka      one broker; `.address`, `.messages(topic)`
    database       str        a schema name that no other test uses; not created

A database server has `.port`, `.address`, `.connect(**pymysql_options)`, `.execute(*sql)` and `.query(sql)` as a user
with all privileges, `.position()`, `.journals()`, `.gtid_set()`, `.version`, `.flavor`; `canal`/`canal` is the user
for replication. All servers have start(), stop(), kill(), restart(), pause(),
resume(), alive(), log_tail().

Shared servers are for tests that leave them running as they were. A test that kills, pauses, purges or needs other
options starts its own, in two seconds:

    with MySQL(row_metadata="MINIMAL", gtid=False, extra=["--binlog-transaction-compression=ON"]) as server: ...
    with MariaDB(server_id=7) as server: ...
    with ZooKeeper() as node: ...      with Ensemble() as ensemble: ...

If a server cannot be started, the test fails with the reason; nothing is skipped. Without `-m`, tests marked `real`,
`spark`, `long` and `timed` are deselected unless they are named one by one (`pytest tests/x.py::test_y`).

A run of the whole suite, as on a push, leaves out three kinds of tests. They run if CANAL_HA_LONG=1, or if the command
line names tests, files or directories:

    two thirds of the tests marked `real` or `spark`; each commit draws another third
    one run of each test that runs with MySQL and with MariaDB; each commit draws one of the two
    tests marked `nightly`, which are slow; cheaper tests of the whole suite cover parts of them
"""

import gc
import itertools
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from lab import Ensemble, MariaDB, MySQL, SqlServer, ZooKeeper
from lab.mysql import CANAL
from tests.sampling import LONG, draw, examples

if TYPE_CHECKING:  # its client is only in the extra `pipeline`
    from lab.kafka import Kafka

PARTS = 3  # of the tests on real servers: a push runs one of them
_numbers = itertools.count(1)
_DATABASE = re.compile(r"(?<=[\[-])(mariadb|mysql)(?=[]-])", re.IGNORECASE)

# Examples have no deadline, because a loaded machine is slow. They are the same on every push, so that a failure can be
# reproduced; only the long suites draw new ones.
settings.register_profile(
    "canal-ha",
    max_examples=examples(100),
    deadline=None,
    derandomize=not LONG,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("canal-ha")


def pytest_configure(config: pytest.Config) -> None:
    """Deselect tests that need services, unless the command line has -m or names a test.

    Raise the thresholds of the garbage collector: a process holds thousands of tests, and a collection that scans
    all of them frees nothing. In some files these collections took a fifth of the processor time.
    """
    gc.set_threshold(50_000, 20, 100)
    if not config.option.markexpr and not any("::" in argument for argument in config.args):
        config.option.markexpr = "not real and not spark and not long and not timed"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests that a push leaves out; order and group the others for parallel runs, the slowest first.

    Those that judge how long a fail-over takes come last, when no Spark keeps the processors busy. Raises UsageError
    for a mark that deploy/test.sh would not find in the test's file.
    """
    for path, name in sorted({(item.path, mark.name) for item in items for mark in item.iter_markers()}):
        if name in ("real", "spark", "timed") and f"mark.{name}" not in path.read_text():
            raise pytest.UsageError(f"{path}: write pytest.mark.{name} in this file; deploy/test.sh searches for it")
    if not LONG and config.args == config.getini("testpaths"):
        left_out = _other_databases(items) | _not_drawn(items)
        left_out |= {item for item in items if item.get_closest_marker("nightly")}
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]
    items.sort(key=lambda item: (item.get_closest_marker("spark") is None, "cluster_faults" in item.path.parts))
    queries = sorted({item.path for item in items if item.get_closest_marker("spark")})
    for item in items:
        # The tests of a file share servers. Two Spark queries at a time are enough for two processors.
        at = queries.index(item.path) % 2 if item.path in queries else None
        item.add_marker(pytest.mark.xdist_group(str(item.path) if at is None else f"spark {at}"))


def pytest_collection_finish() -> None:
    """Keep the collected tests and imported modules, which live until the end, out of garbage collections."""
    gc.freeze()


def _other_databases(items: list[pytest.Item]) -> set[pytest.Item]:
    """Return one test of each pair of tests that differ only in their database."""
    pairs = defaultdict(list)
    for item in items:
        if _DATABASE.search(item.name) and item.get_closest_marker("real"):
            pairs[_DATABASE.sub("*", item.nodeid)].append(item)
    return {
        item
        for test, both in pairs.items()
        if len(both) > 1
        for at, item in enumerate(both)
        if at != draw(f"database of {test}", len(both))
    }


def _not_drawn(items: list[pytest.Item]) -> set[pytest.Item]:
    """Return the tests on real servers that this commit leaves out. The two databases of a test share one draw."""
    services = (item for item in items if item.get_closest_marker("real") or item.get_closest_marker("spark"))
    return {
        item
        for item in services
        if not item.get_closest_marker("timed") and draw(_DATABASE.sub("*", item.nodeid), PARTS)
    }


@pytest.fixture(scope="session")
def mysql() -> Iterator[MySQL]:
    """Yield one MySQL server for the whole run."""
    with MySQL() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDB]:
    """Yield one MariaDB server for the whole run."""
    with MariaDB() as server:
        # some tests commit XA transactions; from then on a snapshot of a table without a key needs it
        server.execute(f"GRANT LOCK TABLES ON *.* TO {CANAL}")
        yield server


@pytest.fixture(scope="session", params=["mariadb", "mysql"])
def source_server(request: pytest.FixtureRequest) -> SqlServer:
    """Return each database server in turn, so that the test runs once with each."""
    server = request.getfixturevalue(request.param)
    assert isinstance(server, SqlServer)
    return server


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[ZooKeeper]:
    """Yield one ZooKeeper node for the whole run."""
    with ZooKeeper() as node:
        yield node


@pytest.fixture(scope="session")
def ensemble() -> Iterator[Ensemble]:
    """Yield an ensemble of three ZooKeeper nodes for the whole run."""
    with Ensemble() as nodes:
        yield nodes


@pytest.fixture(scope="session")
def kafka() -> Iterator["Kafka"]:
    """Yield one Kafka broker for the whole run."""
    from lab.kafka import Kafka

    with Kafka() as broker:
        yield broker


@pytest.fixture
def database() -> str:
    """Return a schema name that no other test uses."""
    return f"t{os.getpid()}_{next(_numbers)}"
