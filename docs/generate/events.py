"""Log events, collected from the source text of canal_ha: every call that writes a line `room.what key=value`.

Events reach the log in three ways: a module's own logger (`log.info("running.claimed", ...)`), `log.event(destination,
"instance.started", ...)`, and `tell("source.lost", ...)`, which hops to the reactor first. A name that is put together
at run time is resolved through FAMILIES; a call that cannot be understood is an error, so that no event is left out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from canal_ha.config import alarms as configuration
from canal_ha.instance import alarms as streams
from canal_ha.meta.repository import CursorLoss
from docs.generate.markdown import code, table

ROOT = Path(__file__).parents[2] / "canal_ha"
NAME = re.compile(r"[a-z]+\.[a-z_]+")
LEVELS = {"debug": "DEBUG", "info": "INFO", "warning": "WARN", "error": "ERROR", "exception": "ERROR"}
TELLERS = frozenset({"event", "tell", "_tell"})
DESTINATION, NODE = "destination", "node"

FAMILIES: Mapping[str, Sequence[str]] = {
    "alarm": tuple(streams.MEANINGS),
    "cursor": tuple(loss.value for loss in CursorLoss),
    "scan": (configuration.REFUSED, configuration.UNREADABLE, configuration.GONE, configuration.RESTART),
}
"""What stands behind the dot in `f"alarm.{...}"`."""


@dataclass(frozen=True, slots=True)
class Event:
    """One place in the code that writes a line.

    name: the first word of the line.
    level: as the line shows it; "INFO or WARN" where an argument decides.
    keys: the keys of the line; `...` stands for keys that the code passes on.
    file: DESTINATION for the destination's own log, NODE for canal.log or a command's standard error.
    """

    name: str
    level: str
    keys: tuple[str, ...]
    file: str

    @property
    def alarm(self) -> bool:
        """Whether the line can ask for a person."""
        return self.level != "INFO"


@cache
def collect(root: Path = ROOT) -> tuple[Event, ...]:
    """Return all events, one for each name, sorted. The keys of several places that write one name are joined."""
    found: dict[str, list[Event]] = {}
    for path in sorted(root.rglob("*.py")):
        for event in of_module(path.read_text(encoding="utf-8"), str(path)):
            found.setdefault(event.name, []).append(event)
    return tuple(_joined(found[name]) for name in sorted(found))


def _joined(events: Sequence[Event]) -> Event:
    levels = dict.fromkeys(event.level for event in events)
    files = dict.fromkeys(event.file for event in events)
    keys = dict.fromkeys(key for event in events for key in event.keys)
    return Event(events[0].name, " or ".join(levels), tuple(keys), " or ".join(files))


def of_module(text: str, path: str) -> Iterator[Event]:
    """Yield the events of one module. Raises ValueError for a name that cannot be told from the text."""
    module = ast.parse(text)
    for function in ast.walk(module):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            names = _assigned(function)
            for call in _calls(function):
                yield from _events(call, names, path)


def _calls(function: ast.AST) -> Iterator[ast.Call]:
    """Calls of a function, those of functions inside it left out: they have their turn."""
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            if isinstance(child, ast.Call):
                yield child
            yield from _calls(child)


def _assigned(function: ast.AST) -> dict[str, ast.expr]:
    """Local variables -> what they are assigned."""
    return {
        target.id: node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _events(call: ast.Call, names: Mapping[str, ast.expr], path: str) -> Iterator[Event]:
    how, level = _writer(call, names)
    if not how:
        return
    argument = call.args[1] if how == "event" and len(call.args) > 1 else call.args[0] if call.args else None
    if isinstance(argument, ast.Name):
        argument = names.get(argument.id, argument)
    keys = tuple(
        "..." if keyword.arg is None else keyword.arg
        for keyword in call.keywords
        if keyword.arg not in ("alarm", "exc_info") or (how in LEVELS and keyword.arg == "alarm")
    )
    if how in TELLERS:
        keys = ("destination", *keys)
    for name in _names(argument, f"{path}:{call.lineno}"):
        if name:
            shown = "WARN" if level == "INFO or WARN" and name.startswith("alarm.") else level
            if name.startswith("alarm.") and name.endswith("_over"):
                shown = "INFO"
            yield Event(name, shown, keys, NODE if how in LEVELS else DESTINATION)


def _writer(call: ast.Call, names: Mapping[str, ast.expr]) -> tuple[str, str]:
    """(method that writes, level); ("", "") for any other call."""
    function = call.func
    if isinstance(function, ast.Name) and isinstance(names.get(function.id), ast.IfExp):
        choice = names[function.id]  # write = log.info if ... else log.warning
        assert isinstance(choice, ast.IfExp)
        branches = [branch.attr for branch in (choice.body, choice.orelse) if isinstance(branch, ast.Attribute)]
        if len(branches) == 2 and set(branches) <= LEVELS.keys():
            return branches[0], " or ".join(LEVELS[branch] for branch in branches)
        return "", ""
    how = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if how in TELLERS:
        return how, _level(call)
    if how in LEVELS and isinstance(function, ast.Attribute) and _is_logger(function.value):
        return how, LEVELS[how]
    return "", ""


def _is_logger(value: ast.expr) -> bool:
    name = value.attr if isinstance(value, ast.Attribute) else getattr(value, "id", "")
    return name.lower().strip("_") == "log"


def _level(call: ast.Call) -> str:
    """Return the level of a call: an alarm is a warning."""
    alarm = next((keyword.value for keyword in call.keywords if keyword.arg == "alarm"), None)
    if alarm is None:
        return "INFO"
    if isinstance(alarm, ast.Constant):
        return "WARN" if alarm.value else "INFO"
    return "INFO or WARN"


def _names(argument: ast.expr | None, where: str) -> Iterator[str]:
    """Event names that an argument can be; nothing for what is no event, as the arguments of other functions."""
    match argument:
        case ast.Constant(value=str(text)) if NAME.fullmatch(text):
            yield text
        case ast.IfExp(body=body, orelse=orelse):
            yield from _names(body, where)
            yield from _names(orelse, where)
        case ast.JoinedStr(values=[ast.Constant(value=str(head)), ast.FormattedValue(), *tail]):
            family, dot, rest = head.partition(".")
            if not dot or rest or family not in FAMILIES:
                raise ValueError(f"{where}: {ast.unparse(argument)} is an event whose names are not in FAMILIES")
            end = "".join(str(part.value) for part in tail if isinstance(part, ast.Constant))
            yield from (f"{family}.{each}{end}" for each in FAMILIES[family])


def page() -> str:
    """Return all events as a table."""
    files = {NODE: "`canal.log`", DESTINATION: "`<destination>.log`"}
    rows = [
        (
            code(event.name, anchor=event.name.replace(".", "-").replace("_", "-")),
            event.level,
            "client" if event.name.startswith("client.") else files.get(event.file, "both"),
            ", ".join("more" if key == "..." else code(key) for key in event.keys),
        )
        for event in collect()
    ]
    return table(("event", "level", "written to", "keys"), rows)
