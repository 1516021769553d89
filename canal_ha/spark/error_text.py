"""Our errors in Spark's Python processes: their sentence alone, without the calls that led there.

Spark puts a traceback into the message of every exception; who mistyped an option, or lost a spool, needs neither
ours nor the causes below it. Anything that is not ours keeps its traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from canal_ha.errors import CanalError

P = ParamSpec("P")
R = TypeVar("R")


def plain_errors(method: Callable[P, R]) -> Callable[P, R]:
    """Wrap a method that Spark calls; the process ends with the error, so that nobody else misses a traceback."""

    @wraps(method)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except CanalError as error:
            if "pyspark.worker_util" in sys.modules:  # loaded in Spark's processes only
                sys.tracebacklimit = 0
            raise error from None

    return wrapped
