"""Real servers for tests marked `real`, started on first use and shared by the whole run.

    @pytest.mark.real
    def test_rows_arrive(source_server: SqlServer, database: str, zookeeper: ZooKeeper) -> None:
        source_server.execute(f"CREATE DATABASE {database}")

Fixtures, all of session scope except `database`:

    mysql          MySQL      9.x, row metadata FULL, GTIDs on
    mariadb        MariaDB    10.11, row metadata FULL
    source_server  SqlServer  either: the test runs once with each
    zookeeper      ZooKeeper  one node; `.hosts` is the connection string
    ensemble       Ensemble   three nodes; `.hosts`, `.nodes`, `.leader()`, `.followers()`
    database       str        a schema name nobody else uses; not created

A database server has `.port`, `.address`, `.connect(**pymysql_options)`, `.execute(*sql)` and `.query(sql)` as a user
with all privileges, `.position()`, `.journals()`, `.gtid_set()`, `.version`, `.flavor`; `canal`/`canal` is the user
for replication. All servers have start(), stop(), kill(), restart(), pause(),
resume(), alive(), log_tail().

Shared servers are for tests that leave them running as they were. A test that kills, pauses, purges or needs other
options starts its own, in two seconds:

    with MySQL(row_metadata="MINIMAL", gtid=False, extra=["--binlog-transaction-compression=ON"]) as server: ...
    with MariaDB(server_id=7) as server: ...
    with ZooKeeper() as node: ...      with Ensemble() as ensemble: ...

A server that cannot be started fails the test and says why; nothing is skipped. Without `-m`, tests marked `real`,
`spark` and `long` are deselected unless they are named one by one (`pytest tests/x.py::test_y`).

A run of the whole suite, as on a push, leaves two kinds of tests out; CANAL_HA_LONG=1 and naming tests, their file or
their directory run them all:

    of a test that is there once for MySQL and once for MariaDB, one, always the same, half of the tests with each
    tests marked `nightly`, which are slow and prove what cheaper tests of the whole suite prove in parts
"""

import itertools
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings

from lab import Ensemble, MariaDB, MySQL, SqlServer, ZooKeeper

_numbers = itertools.count(1)
_DATABASE = re.compile(r"(?<=[\[-])(mariadb|mysql)(?=[]-])", re.IGNORECASE)

# A loaded machine is slow, not wrong. The same examples every time, so that a failure can be seen again; the long
# suites draw new ones.
settings.register_profile(
    "canal-ha",
    deadline=None,
    derandomize=not os.environ.get("CANAL_HA_LONG"),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("canal-ha")


def pytest_configure(config: pytest.Config) -> None:
    """Leave out what needs services, unless the command line chooses by mark or names a test."""
    if not config.option.markexpr and not any("::" in argument for argument in config.args):
        config.option.markexpr = "not real and not spark and not long"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what a push leaves out, and put the slowest suite first for the sake of runs side by side."""
    if not os.environ.get("CANAL_HA_LONG") and config.args == config.getini("testpaths"):
        left_out = _other_databases(items) | {item for item in items if item.get_closest_marker("nightly")}
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)
    queries = sorted({item.path for item in items if item.get_closest_marker("spark")})
    for item in items:
        # a file's tests share servers; two Spark queries at a time are enough for two processors
        at = queries.index(item.path) % 2 if item.path in queries else None
        item.add_marker(pytest.mark.xdist_group(str(item.path) if at is None else f"spark {at}"))


def _other_databases(items: list[pytest.Item]) -> set[pytest.Item]:
    """Return the second of each pair of tests that differ in their database alone."""
    pairs = defaultdict(list)
    for item in items:
        if _DATABASE.search(item.name) and item.get_closest_marker("real"):
            pairs[_DATABASE.sub("*", item.nodeid)].append(item)
    return {
        item
        for test, both in pairs.items()
        if len(both) > 1
        for at, item in enumerate(both)
        if at != crc32(test.encode()) % len(both)
    }


@pytest.fixture(scope="session")
def mysql() -> Iterator[MySQL]:
    """One MySQL for the whole run."""
    with MySQL() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDB]:
    """One MariaDB for the whole run."""
    with MariaDB() as server:
        yield server


@pytest.fixture(scope="session", params=["mariadb", "mysql"])
def source_server(request: pytest.FixtureRequest) -> SqlServer:
    """Run the test once with each database server."""
    server = request.getfixturevalue(request.param)
    assert isinstance(server, SqlServer)
    return server


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[ZooKeeper]:
    """One ZooKeeper node for the whole run."""
    with ZooKeeper() as node:
        yield node


@pytest.fixture(scope="session")
def ensemble() -> Iterator[Ensemble]:
    """Three ZooKeeper nodes for the whole run."""
    with Ensemble() as nodes:
        yield nodes


@pytest.fixture
def database() -> str:
    """Return a schema name that no other test uses."""
    return f"t{os.getpid()}_{next(_numbers)}"
