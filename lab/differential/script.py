"""The script: an endless conversation that yields random statements and receives what the server made of them."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from random import Random

from lab.differential import cutovers, ddl, dml
from lab.differential.dialect import Dialect
from lab.differential.dml import insert_into, update
from lab.differential.forms import Form, FormOf, Maker, Outcome, Statement
from lab.differential.world import Table, World

MOST_TABLES = 9

_WEIGHTS: tuple[tuple[FormOf, int], ...] = (
    (dml.change, 20),
    (dml.everywhere, 3),
    (dml.several, 4),
    (dml.transaction, 8),
    (ddl.alter, 34),
    (ddl.create, 4),
    (ddl.create_if_present, 2),
    (ddl.create_like, 2),
    (ddl.create_select, 3),
    (ddl.unlogged, 4),
    (ddl.index, 1),
    (ddl.rename, 5),
    (ddl.alter_rename, 2),
    (ddl.truncate, 1),
    (ddl.drop, 3),
    (cutovers.ghost, 1),
    (cutovers.pt_osc, 1),
    (cutovers.exchange, 1),
    (cutovers.temporary, 2),
    (cutovers.routine, 1),
    (cutovers.xa, 4),
    (cutovers.widen, 1),
)
_FORMS = tuple(form for form, weight in _WEIGHTS for _ in range(weight))
_FIRST_TABLES = 4
_DROP_DATABASE = 0.002


def script(seed: int, dialect: Dialect, world: World) -> Generator[Statement, Outcome, None]:
    """Yield statements without end; the same seed and the same outcomes give the same statements.

    seed: of the random choices.
    dialect: the server's language.
    world: the empty schemas.
    """
    make = Maker(Random(seed), dialect)
    for _ in range(_FIRST_TABLES):
        world = yield from _ran(ddl.create, make, world)
    while True:
        form = make.random.choice(_FORMS)
        if len(world.tables) < 2:
            form = ddl.create
        elif len(world.tables) > MOST_TABLES:
            form = ddl.drop
        elif make.chance(_DROP_DATABASE):
            form = cutovers.database
        before = world
        world = yield from _ran(form, make, world)
        for table in world.tables:
            if table not in before.tables and world.table(table.name) == table:
                world = yield from _ran(partial(_written, table), make, world)


def _written(table: Table, make: Maker, world: World) -> Form:
    """Write into a table that has just changed, when a name is most likely to be wrong."""
    yield insert_into(make, table)
    if make.chance(0.3):
        yield update(make, table)


def _ran(form: FormOf, make: Maker, world: World) -> Generator[Statement, Outcome, World]:
    """Run one form to its end; return the world after it."""
    steps = form(make, world)
    try:
        statement = next(steps)
        while True:
            outcome = yield statement
            world = outcome.world
            statement = steps.send(outcome)
    except StopIteration:
        return world
