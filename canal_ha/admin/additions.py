"""The actions that add a destination to a node and remove it again: what is asked, and what is answered.

The files of destinations belong to each node: a request changes the node that is asked, and no other one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from canal_ha.accounts import gate
from canal_ha.admin.actions import Action
from canal_ha.admin.forms import DESTINATION, NODE

TEXT_MOST = 24 * 1024
"""Characters of an instance.properties that comes over HTTP."""
FORM_KEYS = frozenset({DESTINATION, NODE})
"""Keys of a body that comes from the page of another node. The path and the node that is asked count."""


@dataclass(frozen=True, slots=True)
class DestinationAdded:
    """What was done, or would be.

    node: that has the destination then.
    file: that is written there.
    listed: whether canal.destinations names it then; False: the node finds the file by itself.
    restart: whether it takes a restart of the node to run it.
    missing_on: the live nodes that do not have it.
    warnings: about the file.
    """

    destination: str
    node: str
    file: str
    listed: bool
    restart: bool
    missing_on: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DestinationRemoved:
    """What was done, or would be.

    node: that does not have the destination any more.
    ran_here: whether it ran on this node before.
    restart: whether it goes on until the node restarts.
    still_on: the live nodes that have it all the same.
    kept, deleted: what is left, and what is gone for ever; texts for a person.
    """

    destination: str
    node: str
    ran_here: bool
    restart: bool
    still_on: tuple[str, ...]
    kept: tuple[str, ...]
    deleted: tuple[str, ...]


class DestinationFiles(Protocol):
    """The files of destinations of this node. Every method raises CanalError with the reason."""

    async def add(self, destination: str, text: str, *, dry_run: bool) -> DestinationAdded:
        """Write a destination's instance.properties, and wait until the node uses it.

        destination: its name.
        text: of the file.
        dry_run: only check everything.
        """
        ...

    async def remove(self, destination: str, *, purge: bool, dry_run: bool) -> DestinationRemoved:
        """Take a destination from the node, and wait until it has ended there in good order.

        destination: its name.
        purge: also delete its cursors and all else that is kept of it; refused while another node has it.
        dry_run: only check everything.
        """
        ...


def addition_actions(files: DestinationFiles) -> Mapping[str, Action]:
    """Return the actions by kind of request, as the gate names it."""

    async def added(destination: str, wanted: tuple[str, bool]) -> dict[str, Any]:
        text, dry_run = wanted
        return {**asdict(await files.add(destination, text, dry_run=dry_run)), "dry_run": dry_run}

    async def removed(destination: str, wanted: tuple[bool, bool]) -> dict[str, Any]:
        purge, dry_run = wanted
        return {**asdict(await files.remove(destination, purge=purge, dry_run=dry_run)), "dry_run": dry_run}

    return {
        gate.ADD: Action(
            "add",
            'send a JSON object {"text": "canal.instance.master.address = db1:3306", "dry_run": false} with the lines'
            f" of instance.properties, at most {TEXT_MOST} characters, as application/json",
            FORM_KEYS | {"text", "dry_run"},
            _addition,
            added,
            lambda wanted: {"dry_run": wanted[1]},
        ),
        gate.REMOVE: Action(
            "remove",
            'send a JSON object {"purge": false, "dry_run": false} as application/json',
            FORM_KEYS | {"purge", "dry_run"},
            _removal,
            removed,
            lambda wanted: {"purge": wanted[0], "dry_run": wanted[1]},
        ),
    }


def _addition(body: Any) -> tuple[str, bool] | None:
    text, dry_run = (body.get("text"), body.get("dry_run", False)) if isinstance(body, dict) else (None, None)
    if not isinstance(text, str) or not isinstance(dry_run, bool) or len(text) > TEXT_MOST:
        return None
    return text, dry_run


def _removal(body: Any) -> tuple[bool, bool] | None:
    purge, dry_run = (body.get("purge", False), body.get("dry_run", False)) if isinstance(body, dict) else (None, None)
    return (purge, dry_run) if isinstance(purge, bool) and isinstance(dry_run, bool) else None
