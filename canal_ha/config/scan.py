"""Decides which destinations start, stop and reload when configuration files change (docs/protocol.md#scan)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from canal_ha.config.model import Stamp


@dataclass(frozen=True, slots=True)
class DirectoryState:
    """The state of the configuration directory at one moment. No file is read for it.

    files: destination -> state of its instance.properties.
    unreadable: destination -> why it is unknown whether it has that file.
    main: state of canal.properties.
    main_gone: message that canal.properties is missing; "" if it exists.
    problem: why the directory or canal.properties cannot be read; the other fields are then empty.
    """

    files: Mapping[str, Stamp] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    main: Stamp | None = None
    main_gone: str = ""
    problem: str = ""

    def missing(self, destination: str) -> bool:
        """Return whether the destination certainly has no file. Without canal.properties this is never certain."""
        return (
            not self.problem
            and not self.main_gone
            and destination not in self.files
            and destination not in self.unreadable
        )


@dataclass(frozen=True, slots=True)
class Reconfiguration:
    """The destinations to stop, reload and start, each sorted by name. A reload needs a valid new configuration."""

    stop: tuple[str, ...] = ()
    reload: tuple[str, ...] = ()
    start: tuple[str, ...] = ()


def compare(known: Mapping[str, Stamp | None], before: DirectoryState, seen: DirectoryState) -> Reconfiguration:
    """Compare a node's destinations with two states of the directory.

    A file that differs between the two states is still being written or replaced; the next scan handles it.

    known: destination -> state of the file that it was configured from; None if it needed none. A destination that
        failed to start is omitted, so that the next scan tries it again.
    before: the earlier state.
    seen: the later state. Any difference from `known` counts, also an older time stamp. A destination without a file
        stops only if it had one and if both states are certain.
    """
    settled = {name: stamp for name, stamp in seen.files.items() if before.files.get(name) == stamp}
    return Reconfiguration(
        stop=tuple(sorted(name for name in known if known[name] and before.missing(name) and seen.missing(name))),
        reload=tuple(sorted(name for name in known if name in settled and settled[name] != known[name])),
        start=tuple(sorted(name for name in settled if name not in known)),
    )
