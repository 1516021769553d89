"""NodeFiles: adds destinations to this node and removes them, in its configuration directory. Reactor thread.

Files are written in the pool. The scan takes them over, as if a person had written them: a file that the scan would
refuse is refused before it is written. One request at a time changes files.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from twisted.internet.defer import DeferredLock
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread

from canal_ha import logs, private_files
from canal_ha.admin.additions import DestinationAdded, DestinationRemoved
from canal_ha.cluster.destination_holders import DestinationHolders
from canal_ha.config import keys, kinds
from canal_ha.config.alarms import ConfigAlarm
from canal_ha.config.destination_list import names_in, with_names
from canal_ha.config.load import INSTANCE_FILE, load_again, load_instance, resolved_path
from canal_ha.config.model import CanalConfig
from canal_ha.config.outside import with_absolute_paths
from canal_ha.config.sent_text import check_sent
from canal_ha.errors import ConfigError, PlacementRefused
from canal_ha.node.hosting import Hosting
from canal_ha.node.scanning import check_filter
from canal_ha.node.stored_files import (
    REMOVED_FILE,
    StoredDestination,
    check_writable,
    delete,
    refuse_what_cannot_be_deleted,
    stored,
)

T = TypeVar("T")

LOOK_S = 0.2
PATIENCE_S = 20.0  # with the scan, and with ZooKeeper; the commands wait for 60 s
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


class NodeFiles:
    """Implements admin.DestinationFiles.

    node: address of this one.
    reactor: Twisted's.
    hosting: what could run here.
    current: returns the node's configuration.
    alarms: returns what the scan refuses.
    hurry: lets the scan look now; see Scan.
    holders: of the cluster; None without ZooKeeper.
    """

    def __init__(
        self,
        node: str,
        reactor: Any,
        hosting: Hosting,
        current: Callable[[], CanalConfig],
        alarms: Callable[[], tuple[ConfigAlarm, ...]],
        hurry: Callable[[], None],
        holders: DestinationHolders | None,
    ) -> None:
        self._node = node
        self._reactor = reactor
        self._hosting = hosting
        self._current = current
        self._alarms = alarms
        self._hurry = hurry
        self._whereabouts = holders
        self._lock = DeferredLock()

    async def add(self, destination: str, text: str, *, dry_run: bool) -> DestinationAdded:
        """See DestinationFiles."""
        return await self._alone(lambda: self._add(destination, text, dry_run), self._added_by_hand, destination)

    async def remove(self, destination: str, *, purge: bool, dry_run: bool) -> DestinationRemoved:
        """See DestinationFiles."""
        return await self._alone(lambda: self._remove(destination, purge, dry_run), self._removed_by_hand, destination)

    async def _alone(self, work: Callable[[], Awaitable[T]], by_hand: Callable[[str], str], destination: str) -> T:
        """Do one thing at a time. by_hand: says what a person can do if the node may not change files."""
        await self._lock.acquire()
        try:
            return await work()
        except OSError as error:
            if error.errno in _FORBIDDEN and error.filename:
                where = error.filename if os.path.isdir(error.filename) else os.path.dirname(error.filename)
                raise PlacementRefused(
                    f"the node may not write {where} ({error.strerror}), and has changed nothing more:"
                    f" {by_hand(destination)}"
                ) from error
            raise PlacementRefused(f"{error.filename}: {error.strerror}: nothing more was changed") from error
        finally:
            self._lock.release()

    def _added_by_hand(self, destination: str) -> str:
        config = self._current()
        file = config.conf_dir / destination / INSTANCE_FILE
        if config.auto_scan:
            return f"write {file} yourself; the node finds it, because canal.auto.scan = true"
        return f"write {file} yourself, add {destination} to canal.destinations in {config.main_file}, restart the node"

    def _removed_by_hand(self, destination: str) -> str:
        config = self._current()
        if config.auto_scan:
            return f"remove the files of {destination} there yourself; the node sees it, because canal.auto.scan = true"
        return f"remove the files of {destination} and its name in {config.main_file} yourself, restart the node"

    # ---- to add

    async def _add(self, destination: str, text: str, dry_run: bool) -> DestinationAdded:
        config = await self._usable(destination)
        file = config.conf_dir / destination / INSTANCE_FILE
        # without the scan, a destination that was removed runs until the node restarts
        runs = config.auto_scan and destination in self._hosting.configured
        if runs or destination in config.listed or file.exists():
            raise PlacementRefused(f"{self._node} has {destination} already: change {file} to change it")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise PlacementRefused(f"the text of {destination} is no UTF-8: {error.reason}") from error
        warnings = await deferToThread(_checked, config, destination, text)
        listing = None if config.auto_scan else _listing(config, (*config.listed, destination))
        if listing is not None:
            check_writable(config.main_file.resolve().parent)
        missing = await self._whereabouts.lacking(destination) if self._whereabouts else ()
        if not dry_run:
            await deferToThread(_write, file, text, config.main_file, listing)
            if config.auto_scan:
                await self._until(destination, lambda: destination in self._hosting.configured)
        return DestinationAdded(
            destination,
            self._node,
            str(file),
            listing is not None,
            not config.auto_scan,
            tuple(name for name in missing if name != self._node),
            warnings,
        )

    async def _usable(self, destination: str) -> CanalConfig:
        """Return the node's configuration, with the list of destinations as it is now.

        Raises PlacementRefused if no destination of this name can come or go.
        """
        try:
            kinds.destination(destination)
        except ValueError:
            raise PlacementRefused(
                f"{destination} is no name of a destination: {keys.DESTINATIONS.kind.expected}"
            ) from None
        if "," in destination or destination.startswith(".") or destination.lower() == "spring":
            raise PlacementRefused(f"a destination cannot be called {destination}: the node skips such a directory")
        if destination in logs.OF_THE_NODE:
            raise PlacementRefused(f"a destination cannot be called {destination}: the node has logs of its own there")
        if "${" in destination:
            raise PlacementRefused(f"a destination cannot be called {destination}: it would be a placeholder")
        config = self._current()
        if config.given:
            raise PlacementRefused("a program has configured this node: change its destinations in the program")
        if config.auto_scan:
            return config  # the scan follows the list
        try:
            found = await deferToThread(load_again, config, (), os.environ)
        except ConfigError as error:
            raise PlacementRefused(f"{error}: correct that first") from error
        return replace(config, listed=found.listed)

    # ---- to remove

    async def _remove(self, destination: str, purge: bool, dry_run: bool) -> DestinationRemoved:
        config = await self._usable(destination)
        file = config.conf_dir / destination / INSTANCE_FILE
        instance = self._hosting.configured.get(destination)
        named = file.exists() or destination in config.listed
        here = instance is not None or named
        if instance is not None and not named and not purge and not config.auto_scan:
            raise PlacementRefused(
                f"{destination} is removed from {self._node} already, and goes on until the node restarts"
            )
        still_on = tuple(name for name in await self._having(destination) if name != self._node)
        clients = await self._whereabouts.kept(destination) if self._whereabouts else None

        def look() -> StoredDestination:
            return stored(config, destination, instance, os.environ)

        found = await deferToThread(look)
        if not here and not (purge and (any(place.own for place in found.places) or clients is not None)):
            raise PlacementRefused(f"{self._node} has no destination {destination}")
        if purge and still_on:
            raise PlacementRefused(
                f"{', '.join(still_on)} could still run {destination}: remove it there first, and purge it last"
            )
        if purge and here and not config.auto_scan:
            raise PlacementRefused(
                f"{destination} goes on until the node restarts, because canal.auto.scan = false: remove it, restart"
                " the node, then remove it with --purge"
            )
        names = tuple(name for name in config.listed if name != destination)
        listing = _listing(config, names) if destination in config.listed else None
        has_file = file.exists()
        if listing is not None:
            check_writable(config.main_file.resolve().parent)
        if has_file:
            check_writable(file.parent)
        if purge:
            refuse_what_cannot_be_deleted(found.places)
        ran_here = self._hosting.runs(destination)
        left = found
        if not dry_run:
            await deferToThread(_retire, file, config.main_file, listing)
            if here and config.auto_scan:
                await self._until(destination, lambda: destination not in self._hosting.configured)
            await self._hosting.ended(destination)
            left = found = await deferToThread(look)  # a destination that ends writes its cursors
            if purge:
                await self._forget(destination)
                await deferToThread(delete, found.places)
                left = await deferToThread(look)
        things = [each.shown(settings=purge) for each in found.places]
        if has_file and not purge:
            things.insert(0, f"its file, as {file.with_name(REMOVED_FILE)}")
        if clients is not None:
            things.append(f"{_clients(clients)} and the history of its tables, in ZooKeeper")
        things = [each for each in things if each]
        others = [each.left for each in left.places if purge and each.left]
        return DestinationRemoved(
            destination,
            self._node,
            ran_here,
            here and not config.auto_scan,
            still_on,
            (*(() if purge else things), *others, *found.elsewhere),
            tuple(things) if purge else (),
        )

    async def _forget(self, destination: str) -> None:
        """Delete what ZooKeeper has of a destination."""
        if self._whereabouts:
            until = self._reactor.seconds() + PATIENCE_S
            while self._node in await self._having(destination) and self._reactor.seconds() < until:
                await deferLater(self._reactor, LOOK_S)
            await self._whereabouts.delete(destination)

    async def _having(self, destination: str) -> tuple[str, ...]:
        return await self._whereabouts.having(destination) if self._whereabouts else ()

    # ---- the scan

    async def _until(self, destination: str, holds: Callable[[], bool]) -> None:
        """Wait until the scan has followed the files. Raises PlacementRefused if it does not."""
        until = self._reactor.seconds() + PATIENCE_S
        while not holds():
            self._hurry()  # again and again, because the look that is under way may have begun before the change
            if self._reactor.seconds() >= until:
                why = "; ".join(each.text for each in self._alarms() if each.destination in (destination, ""))
                raise PlacementRefused(
                    f"the files of {destination} are changed, but the node has not taken that over:"
                    f" {why or 'its log says why'}"
                )
            await deferLater(self._reactor, LOOK_S)


def _clients(client_ids: tuple[int, ...]) -> str:
    return f"the cursors of the clients {', '.join(map(str, client_ids))}" if client_ids else "no cursor"


def _listing(config: CanalConfig, names: tuple[str, ...]) -> str:
    """Return canal.properties with these names in its list. Raises PlacementRefused, OSError."""
    try:
        text = config.main_file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise PlacementRefused(f"{config.main_file} is not UTF-8: change canal.destinations there by hand") from error
    if names_in(text) != config.listed:
        raise PlacementRefused(
            f"canal.destinations does not come from {config.main_file} alone: change it by hand, where"
            " `canal-ha config show` finds it"
        )
    return with_names(text, names)


# ---- in the pool


def _checked(config: CanalConfig, destination: str, text: str) -> tuple[str, ...]:
    """Load a file as the scan would, and return the warnings. Raises PlacementRefused, OSError."""
    with TemporaryDirectory(prefix=".check-", dir=config.conf_dir) as place:  # the scan skips hidden directories
        directory, own = Path(place) / destination, config.conf_dir / destination
        directory.mkdir(0o700)
        beside = own if own.is_dir() else Path(place)  # `..` leads to the same directory from both
        private_files.replace(directory / INSTANCE_FILE, with_absolute_paths(text, beside).encode())

        def shown(found: str) -> str:
            return found.replace(str(directory), str(own)).replace(place, str(own))

        try:
            named = partial(resolved_path, config.main_file)
            check_sent(text, own / INSTANCE_FILE, config.admin_http_secrets, config.layers, named)
            _, warnings = load_instance(replace(config, conf_dir=Path(place)), destination, os.environ, check_filter)
        except ConfigError as error:
            raise PlacementRefused(shown(str(error))) from error
        return tuple(map(shown, warnings))


def _write(file: Path, text: str, main_file: Path, listing: str | None) -> None:
    """Write both files or none of them. Raises OSError."""
    is_new = not file.parent.exists()
    try:
        private_files.replace(file, text.encode())
        if listing is not None:
            _replace_shared(main_file, listing)
    except OSError:
        with suppress(OSError):  # the first error is the one to report
            file.unlink(missing_ok=True)
            if is_new:
                file.parent.rmdir()
        raise


def _retire(file: Path, main_file: Path, listing: str | None) -> None:
    if listing is not None:
        _replace_shared(main_file, listing)
    if file.exists():
        file.replace(file.with_name(REMOVED_FILE))


def _replace_shared(file: Path, text: str) -> None:
    """Replace a file of the operator's, which keeps its mode."""
    mode = file.stat().st_mode & 0o7777
    private_files.replace(file.resolve(), text.encode())
    file.chmod(mode)
