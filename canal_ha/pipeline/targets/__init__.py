"""Where rows go: one module for each type, with the name of the type."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from canal_ha.errors import OptionInvalid
from canal_ha.pipeline.description import Description
from canal_ha.pipeline.targets.target import PipelineTarget

_SCHEMA = ".schema.json"  # of a target's options


def open_target(description: Description) -> PipelineTarget:
    """Open the target of a pipeline. Raises OptionInvalid for an unknown type or a missing library, and SinkRefused."""
    kind = description.target.kind
    if kind not in kinds():
        raise OptionInvalid(
            f"{description.file}: target.type = {kind!r}: no target has this type; use one of {', '.join(kinds())}"
        )
    try:
        module = import_module(f"{__name__}.{kind}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "canal_ha":
            raise
        raise OptionInvalid(
            f"{description.file}: a target of type {kind} needs the library {error.name}:"
            " install canal-ha with the extra `pipeline`"
        ) from error
    target: PipelineTarget = module.open_target(description)
    return target


def kinds() -> list[str]:
    """Return the types of targets, sorted."""
    return sorted(path.name.removesuffix(_SCHEMA) for path in Path(__file__).parent.glob(f"*{_SCHEMA}"))
