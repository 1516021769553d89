"""Shows our errors in Spark's Python processes without a traceback.

Spark adds a traceback to the message of every exception. For our errors the text is enough, so the traceback is
removed. Other errors keep theirs. In the driver, Py4J logs the exceptions of callbacks with their tracebacks, too.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from canal_ha.errors import CanalError

P = ParamSpec("P")
R = TypeVar("R")


def _is_not_ours(record: logging.LogRecord) -> bool:
    """Return whether a line of Py4J is about another error than ours, which the query ends with."""
    return record.exc_info is None or not isinstance(record.exc_info[1], CanalError)


def spare_tracebacks() -> None:
    """Leave our errors out of the log of Py4J, in the driver's process."""
    logging.getLogger("py4j.clientserver").addFilter(_is_not_ours)


def plain_errors(method: Callable[P, R]) -> Callable[P, R]:
    """Wrap a method that Spark calls. The process ends with the error, so no other traceback is lost."""

    @wraps(method)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except CanalError as error:
            if "pyspark.worker_util" in sys.modules:  # only Spark's own processes load this module
                sys.tracebacklimit = 0
            raise error from None

    return wrapped
