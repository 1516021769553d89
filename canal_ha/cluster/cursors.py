"""Cursors in ZooKeeper as an operator edits them: the owner of the destination sees the edit and goes on from there.

Blocking, without a reactor: for commands. An edit needs no fence; what an owner writes at the same time is fenced by
the version of the node, so that one of the two writes sees the other.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, KazooException, NoAuthError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from canal_ha.errors import MetaUnreadable, MetaWriteFailed, ZooKeeperUnavailable
from canal_ha.model.position import LogPosition
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.connect_string import connect_string

CONNECT_MOST_S = 10.0
ATTEMPTS = 20


class CursorNodes:
    """A session for cursors; `with` opens and closes it. servers: as canal.zkServers; auth: user:password or "".

    Every method raises ZooKeeperUnavailable.
    """

    def __init__(self, servers: str, auth: str = "") -> None:
        self._servers = servers
        hosts, random_order = connect_string(servers)
        auth_data = [("digest", auth)] if auth else None
        self._client = KazooClient(hosts, randomize_hosts=random_order, auth_data=auth_data)

    def __enter__(self) -> Self:
        try:
            self._client.start(timeout=CONNECT_MOST_S)
        except (KazooTimeoutError, KazooException) as error:
            self._close()
            raise ZooKeeperUnavailable(f"no ZooKeeper answers at {self._servers}: {error}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        self._client.stop()
        self._client.close()

    def read(self, destination: str, client_id: int) -> LogPosition | None:
        """The cursor; None when this client has none. Raises MetaUnreadable."""
        path = tree.cursor(destination, client_id)
        try:
            text = self._client.get(path)[0].decode()
            return LogPosition.from_json(text)
        except NoNodeError:
            return None
        except ValueError as error:
            raise MetaUnreadable(f"{path}: {error}") from error
        except (KazooTimeoutError, KazooException) as error:
            raise self._unavailable(error) from error

    def write(self, destination: str, client_id: int, position: LogPosition) -> None:
        """Replace a cursor. Raises MetaWriteFailed when there is none."""
        path = tree.cursor(destination, client_id)
        data = position.to_json(with_type=True).encode()
        for _ in range(ATTEMPTS):
            try:
                self._client.set(path, data, version=self._client.get(path)[1].version)
                return
            except BadVersionError:
                continue  # the owner has just written
            except NoNodeError as error:
                raise MetaWriteFailed(
                    f"client {client_id} of {destination} has no cursor: it never subscribed"
                ) from error
            except (KazooTimeoutError, KazooException) as error:
                raise self._unavailable(error) from error
        raise MetaWriteFailed(f"{path} changed under {ATTEMPTS} attempts to write it")

    def problems(self) -> list[str]:
        """What keeps a node from working here; tries to write in a node of its own."""
        path = f"{tree.ROOT}/check"
        try:
            self._client.ensure_path(path)
            self._client.set(path, b"")
            self._client.delete(path)
        except NoAuthError:
            return [f"no right to write below {tree.ROOT}: set canal.zookeeper.auth as on the node that made it"]
        except (KazooTimeoutError, KazooException) as error:
            return [f"writing below {tree.ROOT} failed: {error!r}"]
        return []

    def clients(self, destination: str) -> tuple[int, ...]:
        """Client ids that ZooKeeper knows."""
        try:
            children = self._client.get_children(tree.destination(destination))
        except NoNodeError:
            return ()
        except (KazooTimeoutError, KazooException) as error:
            raise self._unavailable(error) from error
        return tuple(sorted(int(child) for child in children if child.lstrip("-").isdecimal()))

    def _unavailable(self, error: Exception) -> ZooKeeperUnavailable:
        if isinstance(error, NoAuthError):
            return ZooKeeperUnavailable(f"ZooKeeper at {self._servers} refuses: is canal.zookeeper.auth set?")
        return ZooKeeperUnavailable(f"ZooKeeper at {self._servers}: {error!r}")
