"""Which destinations start, stop and reload when the configuration directory changes (specification 6.6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Changes:
    """What to do, in this order; each in the order of names. A reload is a stop and a start."""

    stop: tuple[str, ...] = ()
    reload: tuple[str, ...] = ()
    start: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.stop or self.reload or self.start)


def compare(known: Mapping[str, int], seen: Mapping[str, int]) -> Changes:
    """Compare the destinations a node knows with the instance.properties files found now.

    known: destination -> modification time (ns) of the file it was configured from, 0 when it needed none; a
    destination whose start failed is left out, so that the next scan tries it again. seen: the same of the directory
    (`load.conf_state`). Any difference of times counts, also a step back. A destination without a file is stopped only
    if it had one.
    """
    return Changes(
        stop=tuple(sorted(name for name, time in known.items() if time and name not in seen)),
        reload=tuple(sorted(name for name, time in known.items() if name in seen and seen[name] != time)),
        start=tuple(sorted(name for name in seen if name not in known)),
    )
