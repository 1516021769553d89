"""Error classes, from canal_ha.errors."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from canal_ha import errors
from canal_ha.errors import CanalError
from docs.generate.markdown import code, prose, table


def classes() -> Iterator[type[CanalError]]:
    """Yield the classes of the tree, in the order of the file."""
    for value in vars(errors).values():
        if inspect.isclass(value) and issubclass(value, CanalError) and value.__module__ == errors.__name__:
            yield value


def row(each: type[CanalError]) -> tuple[str, ...]:
    """Return one line of the table."""
    parent = each.__base__
    assert parent is not None
    return (
        code(each.__name__, anchor=each.__name__.lower()),
        "" if parent is Exception else code(parent.__name__),
        "yes" if each.retryable else "no",
        str(each.code),
        prose(inspect.getdoc(each) or ""),
    )


def page() -> str:
    """Return the tree as a table."""
    return table(("class", "is a", "a retry can help", "code", "meaning"), map(row, classes()))
