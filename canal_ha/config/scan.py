"""Which destinations start, stop and reload when the configuration directory changes (docs/protocol.md#scan)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from canal_ha.config.model import Stamp


@dataclass(frozen=True, slots=True)
class DirectoryState:
    """What one look at the configuration directory shows; no file is read for it.

    files: destination -> state of its instance.properties.
    unreadable: destination -> why nobody can tell whether it has that file.
    main: state of canal.properties.
    main_gone: that canal.properties is not there; "" when it is.
    problem: why the directory or canal.properties cannot be looked at; nothing else is known then.
    """

    files: Mapping[str, Stamp] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    main: Stamp | None = None
    main_gone: str = ""
    problem: str = ""

    def missing(self, destination: str) -> bool:
        """Whether the destination certainly has no file. Without canal.properties all files may be away for a while."""
        return (
            not self.problem
            and not self.main_gone
            and destination not in self.files
            and destination not in self.unreadable
        )


@dataclass(frozen=True, slots=True)
class Reconfiguration:
    """What to do, each in the order of names. A reload replaces a configuration, if the new one can be used."""

    stop: tuple[str, ...] = ()
    reload: tuple[str, ...] = ()
    start: tuple[str, ...] = ()


def compare(known: Mapping[str, Stamp | None], before: DirectoryState, seen: DirectoryState) -> Reconfiguration:
    """Compare the destinations of a node with two looks at the directory.

    A file that differs between the looks is being written, or replaced: the next scan decides about it.

    known: destination -> state of the file that it was configured from, None when it needed none; a destination that
    could not be started is left out, so that the next scan tries it again.
    before, seen: the looks, a moment apart. Any difference from `known` counts, also a step back in time. A
    destination without a file stops only if it had one, and only if both looks could tell.
    """
    settled = {name: stamp for name, stamp in seen.files.items() if before.files.get(name) == stamp}
    return Reconfiguration(
        stop=tuple(sorted(name for name in known if known[name] and before.missing(name) and seen.missing(name))),
        reload=tuple(sorted(name for name in known if name in settled and settled[name] != known[name])),
        start=tuple(sorted(name for name in settled if name not in known)),
    )
