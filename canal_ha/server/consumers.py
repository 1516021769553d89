"""Consumers: which connection consumes with a client id now, and which GETs have to wait for it. Reactor thread.

A client whose network fails connects again while the node still holds its old connection. Nobody receives, and nobody
acknowledges, what the node gives to the old one from then on. So the GETs that wait there end without a batch when the
client begins on another connection, and what that one takes back by a roll-back comes there first: until it has all of
it, the GETs of older connections get nothing. Then the connections of a client id share its rows, as with canal.

A roll-back that the old connection has sent before can be carried out late, and then the old one counts as the newer
one. So what a lost connection was given comes again if any other connection of the client id is open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from canal_ha.instance.stream import WAITING_MOST
from canal_ha.model.batch import GetAnswer
from canal_ha.model.identity import ClientIdentity, ClientKey


@dataclass(slots=True)
class _TakenBack:
    """What a roll-back takes back.

    connection: gets it first.
    entries: how many are left to get.
    under_way: whether the roll-back is not over.
    """

    connection: object
    entries: int
    under_way: bool = True


class Consumers:
    """See the module. A connection is any object."""

    def __init__(self) -> None:
        self._newest: dict[ClientKey, object] = {}  # the connection that consumes
        self._alone: dict[ClientKey, object] = {}  # the connection that alone was given batches since it began
        self._taken_back: dict[ClientKey, _TakenBack] = {}
        self._waiting: dict[ClientKey, dict[object, Callable[[], None]]] = {}  # what ends a GET of a connection
        self._open: dict[ClientKey, dict[object, None]] = {}  # connections that have begun or asked, the newest last
        self._opened_by: dict[object, set[ClientKey]] = {}  # connection -> its client ids in `_open`

    def began(self, identity: ClientIdentity, connection: object) -> None:
        """Note that a connection has subscribed or rolled back. The GETs of others that wait end without a batch."""
        key = identity.key
        self._forget(key)
        self._newest[key] = self._alone[key] = connection
        self._opened(key, connection)
        if key in self._taken_back and self._taken_back[key].connection is not connection:
            self._release(key)  # this one may never ask for it
        self._end_others(key, connection)

    def others(self, identity: ClientIdentity, connection: object) -> bool:
        """Return whether another connection of the client id is open."""
        return any(other is not connection for other in self._open.get(identity.key, ()))

    def newest(self, identity: ClientIdentity) -> object | None:
        """Return the connection that consumes with the client id, or the newest open one; None if none is open."""
        newest = self._newest.get(identity.key)
        return newest or next(reversed(self._open.get(identity.key, {})), None)

    def alone(self, identity: ClientIdentity, connection: object) -> bool:
        """Return whether a connection has begun, and no other one has begun or was given a batch since."""
        return self._alone.get(identity.key) is connection

    def removed(self, identity: ClientIdentity) -> None:
        """Forget who consumes with a client id."""
        self._forget(identity.key)
        for connection in self._open.pop(identity.key, ()):
            self._opened_by[connection].discard(identity.key)
        self._release(identity.key)

    def lost(self, connection: object) -> None:
        """Forget a connection."""
        for key in self._opened_by.pop(connection, ()):
            self._open.get(key, {}).pop(connection, None)
            if not self._open.get(key, True):
                del self._open[key]
            if self._newest.get(key) is connection:
                self._forget(key)
            if key in self._taken_back and self._taken_back[key].connection is connection:
                self._release(key)

    # ---- roll-backs

    @contextmanager
    def rolling_back(self, identity: ClientIdentity, connection: object, entries: int) -> Iterator[None]:
        """Carry out a roll-back inside, for a connection. An error leaves things as they were.

        entries: how many are in flight. Those of an earlier roll-back that nobody has got again are taken back with
            them: canal's clients roll back, subscribe, and roll back once more.
        """
        key, before = identity.key, self._taken_back.get(identity.key)
        if before:
            # one that is under way may have taken back the same entries
            entries = max(before.entries, entries) if before.under_way else before.entries + entries
        back = self._taken_back[key] = _TakenBack(connection, entries)
        self._end_others(key, connection)
        try:
            yield
        except BaseException:
            if self._taken_back.get(key) is back:
                self._release(key)
                if before and self._newest.get(key) is before.connection:
                    self._taken_back[key] = before
            raise
        back.under_way = False
        if self._taken_back.get(key) is back and back.entries <= 0:
            self._release(key)

    def gave_up(self, identity: ClientIdentity, connection: object) -> None:
        """A connection does not want any more what it has taken back."""
        back = self._taken_back.get(identity.key)
        if back and back.connection is connection:
            self._release(identity.key)

    def keeps_back(self, identity: ClientIdentity, connection: object) -> bool:
        """Return whether another connection has to get first what it has taken back."""
        back = self._taken_back.get(identity.key) if self._taken_back else None
        return back is not None and back.connection is not connection

    def gave(self, identity: ClientIdentity, connection: object, answer: GetAnswer) -> None:
        """Note what the GET of a connection was answered."""
        if answer.batch is None:
            return
        key = identity.key
        if self._alone.get(key, connection) is not connection:
            del self._alone[key]
        back = self._taken_back.get(key) if self._taken_back else None
        if back and back.connection is connection:
            back.entries -= answer.batch.entries
            if back.entries <= 0 and not back.under_way:
                self._release(key)

    def crowded(self, identity: ClientIdentity) -> bool:
        """Return whether so many GETs of the client id wait, here or in its stream, that one more must not."""
        return len(self._waiting.get(identity.key, ())) > WAITING_MOST

    def is_open(self, identity: ClientIdentity, connection: object) -> bool:
        """Return whether the connection has begun or asked with the client id."""
        return connection in self._open.get(identity.key, ())

    def asks(self, identity: ClientIdentity, connection: object) -> None:
        """Note that a connection asks for batches of a client that exists. Of others, nothing may stay."""
        self._opened(identity.key, connection)

    def waits(self, identity: ClientIdentity, connection: object, end: Callable[[], None]) -> None:
        """Note that a connection begins to carry out a GET. end: makes it end without a batch."""
        gets = self._waiting.get(identity.key)
        if gets is None:
            gets = self._waiting[identity.key] = {}
        gets[connection] = end

    def waits_no_more(self, identity: ClientIdentity, connection: object) -> None:
        """Note that the GET is over."""
        gets = self._waiting[identity.key]
        del gets[connection]
        if not gets:
            del self._waiting[identity.key]

    # ---- inside

    def _opened(self, key: ClientKey, connection: object) -> None:
        if connection not in (connections := self._open.setdefault(key, {})):
            connections[connection] = None
            self._opened_by.setdefault(connection, set()).add(key)

    def _forget(self, key: ClientKey) -> None:
        self._alone.pop(key, None)
        self._newest.pop(key, None)

    def _release(self, key: ClientKey) -> None:
        """Nothing is kept back any more: the GETs that wait for that end, and their clients ask again."""
        back = self._taken_back.pop(key, None)
        if back:
            self._end_others(key, back.connection)

    def _end_others(self, key: ClientKey, connection: object) -> None:
        for other, end in tuple(self._waiting.get(key, {}).items()):
            if other is not connection:
                end()
