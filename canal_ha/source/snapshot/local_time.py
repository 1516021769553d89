"""Texts of TIMESTAMP values in the time zone of the process, in which canal's form has them."""

from __future__ import annotations

import time
from calendar import timegm

_DAY_S = 86400


def repeated(text: str) -> bool:
    """Return whether a local time stands for two instants, because clocks were set back over it.

    text: `2020-10-25 02:30:00`, with or without a fraction; False for a text that is no time.
    """
    try:
        local_s = timegm(time.strptime(text[:19], "%Y-%m-%d %H:%M:%S"))
    except ValueError:
        return False
    offsets = {time.localtime(local_s + away).tm_gmtoff for away in (-_DAY_S, _DAY_S)}
    return sum(time.localtime(local_s - offset).tm_gmtoff == offset for offset in offsets) > 1
