"""The forms of the page for actions: what a person fills in, and the JSON body that the action gets.

A new action of `canal_ha.admin.actions` comes onto the page with a Form here, and a line in routes.PAGES.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from canal_ha.accounts import gate
from canal_ha.admin.cursors import CURSOR_ACTIONS, SET
from canal_ha.client.node_answer import ADDED, REMOVED
from canal_ha.client.node_answer import SNAPSHOT as SNAPSHOT_SHAPE
from canal_ha.model.place import FORMS as FORMS_OF_PLACES
from canal_ha.model.snapshot import SnapshotAction

DESTINATION = "destination"
"""Field, and key of a body, with the name of a destination that does not exist yet."""
NODE = "node"
"""Field, and key of a body, with the node on which to act, or EVERY_NODE."""
EVERY_NODE = "every node that answers"

Given = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Field:
    """One field.

    name: of the parameter.
    label: for a person.
    choices: to choose from; () for a text.
    clients: choose one of the destination's client ids.
    nodes: choose one of the nodes that stand by.
    alive: choose EVERY_NODE or one of the nodes that answer.
    lines: a text of several lines.
    properties: of these, a properties file, which can have passwords.
    numeric: a number.
    """

    name: str
    label: str
    choices: tuple[str, ...] = ()
    clients: bool = False
    nodes: bool = False
    alive: bool = False
    lines: bool = False
    properties: bool = False
    numeric: bool = False


@dataclass(frozen=True, slots=True)
class Form:
    """One action.

    kind: of request, as the gate names it.
    part: last part of the path, of the page and of the API.
    title: of the page and its button.
    explanation: shown with the fields.
    effect: shown before a person confirms.
    fields: to fill in.
    body: returns the JSON body; raises ValueError for a field that cannot be read.
    shape: of the answer of the node that runs the destination, see node_answer; None: any node can do it.
    done: says what was done, from the answer.
    planned: says what would be done, from the answer to a dry run of the same shape; None: there is no dry run.
    of_cluster: it is about the whole cluster, and not about one destination that exists.
    of_nodes: it is carried out on the nodes that NODE in the body names. `done` and `planned` get their answers as
        `nodes`.
    """

    kind: str
    part: str
    title: str
    explanation: str
    effect: str
    fields: tuple[Field, ...]
    body: Callable[[Given], dict[str, Any]]
    shape: Mapping[str, Any] | None
    done: Callable[[Mapping[str, Any]], str]
    planned: Callable[[Mapping[str, Any]], str] | None = None
    of_cluster: bool = False
    of_nodes: bool = False


def _source(given: Given) -> dict[str, Any]:
    number = given.get("number", "").strip()
    to = given.get("to", "other")
    return {"to": f"{_number(number, 'The number of the source')}/{to}" if number else to}


def _snapshot(given: Given) -> dict[str, Any]:
    body: dict[str, Any] = {
        "action": given.get("action", ""),
        "client_id": _number(given.get("client_id", ""), "The client id"),
    }
    if body["action"] in (SnapshotAction.START.value, SnapshotAction.ADD.value):
        body["tables"] = _lines(given.get("tables", ""))
        body["without_key"] = given.get("without_key") == "yes"
        body["rows_per_s_most"] = _number(given.get("rows_per_s_most", "").strip() or "0", "The rows a second")
    elif body["action"] == SnapshotAction.RESUME.value:
        body["leave_out"] = _lines(given.get("leave_out", ""))
    return body


def _lines(text: str) -> list[str]:
    """Return the names of tables, one a line: they can have blanks and commas."""
    return [line.strip() for line in text.splitlines() if line.strip()]


def _cursor(given: Given) -> dict[str, Any]:
    body = {"client_id": _number(given.get("client_id", ""), "The client id"), "action": given.get("action", "")}
    return body | ({"to": given.get("to", "").strip()} if body["action"] == SET else {})


def _moved_cursor(answer: Mapping[str, Any], verb: str) -> str:
    before, after = answer["before"], answer["after"]
    return f"{verb} moved from {before} to {after}" if after else f"at {before} {verb} deleted"


def _move(given: Given) -> dict[str, Any]:
    if not given.get("to"):
        raise ValueError("No other node stands by for this destination.")
    return {"to": given["to"]}


def _moves(moves: Sequence[Mapping[str, Any]], verb: str) -> str:
    lines = [f"{each['destination']} {verb} from {each['moved_from']} to {each['moved_to']}." for each in moves]
    return " ".join(lines) or "All nodes run about as many destinations, so nothing moves."


def _addition(given: Given) -> dict[str, Any]:
    name, text = given.get(DESTINATION, "").strip(), given.get("text", "").replace("\r\n", "\n").strip()
    if not name or not text:
        raise ValueError("Fill in the name of the destination and its instance.properties.")
    return {DESTINATION: name, NODE: given.get(NODE, ""), "text": f"{text}\n"}


def _added(answer: Mapping[str, Any], verb: str) -> str:
    told = answer["nodes"]
    waiting = _nodes([each for each in told if each["restart"]])
    restart = f" Restart {waiting}: canal.auto.scan is false there." if waiting else ""
    missing = _elsewhere(told, "missing_on")
    there = f" Not on {missing}: they could not take over." if missing else ""
    warnings = "".join(f" Warning: {text}." for text in _every(told, "warnings"))
    by_file: dict[str, list[Mapping[str, Any]]] = {}
    for each in told:
        by_file.setdefault(str(each["file"]), []).append(each)
    written = " ".join(f"{_nodes(nodes)} {verb} {file}." for file, nodes in by_file.items())
    return f"{written}{restart}{there}{warnings}"


def _removed(answer: Mapping[str, Any], verb: str) -> str:
    told = answer["nodes"]
    waiting = _nodes([each for each in told if each["restart"]])
    restart = f" It goes on until a restart of {waiting}: canal.auto.scan is false." if waiting else ""
    still = _elsewhere(told, "still_on")
    there = f" Still on {still}." if still else ""
    kept = "".join(f" Kept: {text}." for text in _every(told, "kept"))
    return f"{_nodes(told)} {verb} it.{restart}{there}{kept}"


def _every(told: Sequence[Mapping[str, Any]], key: str) -> list[str]:
    """Return what the answers have under a key, each text once."""
    return sorted({text for each in told for text in each[key]})


def _elsewhere(told: Sequence[Mapping[str, Any]], key: str) -> str:
    """Return the nodes that the answers have under a key, except those that have answered."""
    return ", ".join(name for name in _every(told, key) if all(each["node"] != name for each in told))


def _nodes(told: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(str(each["node"]) for each in told)


def _number(text: str, what: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{what} is no number: {text[:40]}") from None


FORMS: Mapping[str, Form] = {
    form.kind: form
    for form in (
        Form(
            gate.SWITCH,
            "source",
            "Switch the source",
            "The destination reads from its other server. Clients notice nothing: reading goes on after the last"
            " transaction that was delivered.",
            "If the other server cannot be read, or lacks what clients need, nothing changes and you see the reason.",
            (
                Field("to", "Read from", ("other", "master", "standby")),
                Field("number", "Number of the source, if the destination has several", numeric=True),
            ),
            _source,
            {"source": str},
            lambda answer: f"It reads from {answer['source']} now.",
        ),
        Form(
            gate.SNAPSHOT,
            "snapshot",
            "Snapshot",
            "Existing rows of tables are read into the stream of a client, beside the changes.",
            "The stream of the client begins again at its cursor, as after a roll-back. Reading puts load"
            " on the source.",
            (
                Field("action", "What to do", tuple(each.value for each in SnapshotAction)),
                Field("client_id", "Client id", clients=True),
                Field("tables", "Tables, for start and add: schema.table, one a line", lines=True),
                Field("leave_out", "Tables to leave out, for resume: schema.table, one a line", lines=True),
                Field("without_key", "Also tables without a key, for start and add", ("no", "yes")),
                Field("rows_per_s_most", "Rows a second at most, for start and add; 0: as configured", numeric=True),
            ),
            _snapshot,
            {"snapshot": SNAPSHOT_SHAPE},
            lambda answer: f"The snapshot {answer['snapshot']['id']} is {answer['snapshot']['phase']}.",
        ),
        Form(
            gate.CURSOR,
            "cursor",
            "Cursor",
            "The cursor of a client is moved, forward to skip changes or back to read them again, or it is deleted with"
            " the client's filter. A client whose cursor is deleted begins as a new one when it subscribes again.",
            "Batches in flight are void: the client gets its changes from the new place on.",
            (
                Field("client_id", "Client id", clients=True),
                Field("action", "What to do", CURSOR_ACTIONS),
                Field("to", f"Where to, for set: {FORMS_OF_PLACES}"),
            ),
            _cursor,
            {"client_id": int, "before": str, "after": str},
            lambda answer: f"The cursor of client {answer['client_id']} {_moved_cursor(answer, 'was')}.",
            lambda answer: f"The cursor of client {answer['client_id']} {_moved_cursor(answer, 'will be')}.",
        ),
        Form(
            gate.MOVE,
            "move",
            "Move",
            "The destination is handed to another node.",
            "Its owner writes the cursors first. Clients reconnect by themselves, and no row is lost.",
            (Field("to", "Node that runs it then", nodes=True),),
            _move,
            None,
            lambda answer: f"{_moves([answer], 'moved')} It took {answer['seconds']:.2f} s.",
            lambda answer: _moves([answer], "moves"),
        ),
        Form(
            gate.PAUSE,
            "pause",
            "Pause",
            "The destination stops on all nodes, and stays stopped over restarts until it is resumed.",
            "Clients wait. No row is lost, if the source keeps its binary logs for as long as the pause lasts.",
            (),
            lambda given: {},
            None,
            lambda answer: "It is paused.",
            lambda answer: f"It stops{' on ' + answer['ran_on'] if answer['ran_on'] else ''}.",
        ),
        Form(
            gate.RESUME,
            "resume",
            "Resume",
            "The nodes may run the paused destination again.",
            "Clients go on where they were.",
            (),
            lambda given: {},
            None,
            lambda answer: f"It runs on {answer['runs_on']} now." if answer["runs_on"] else "No node runs it yet.",
            lambda answer: "It runs on the node that claims it first.",
        ),
        Form(
            gate.REBALANCE,
            "rebalance",
            "Rebalance",
            "Destinations move, one after the other, until all nodes run about as many. A destination goes to a node"
            " that it prefers, whatever the numbers are.",
            "Each move is a hand-over: clients reconnect by themselves, and no row is lost.",
            (),
            lambda given: {},
            None,
            lambda answer: _moves(answer["moves"], "moved"),
            lambda answer: _moves(answer["moves"], "moves"),
            of_cluster=True,
        ),
        Form(
            gate.ADD,
            "add",
            "Add a destination",
            "Each node that may run the destination needs its instance.properties. The file is checked before it is"
            " written. To keep its password out of it, write canal.instance.dbPassword = ${file:PATH} with a file in"
            " the node's canal.admin.http.secrets. Other placeholders of files or variables are refused.",
            "Nodes find the new file and take part in the race for the destination.",
            (
                Field(DESTINATION, "Name"),
                Field(NODE, "Where", alive=True),
                Field(
                    "text",
                    "instance.properties, for example canal.instance.master.address = db1:3306",
                    lines=True,
                    properties=True,
                ),
            ),
            _addition,
            ADDED,
            lambda answer: _added(answer, "wrote"),
            lambda answer: _added(answer, "will write"),
            of_cluster=True,
            of_nodes=True,
        ),
        Form(
            gate.REMOVE,
            "remove",
            "Remove",
            "The nodes take the instance.properties away, and the destination ends there in good order. Cursors"
            " stay: if it is added again, clients go on where they were. To delete them too, use canal-ha destination"
            " remove --purge.",
            "Clients are refused as soon as no node has the destination.",
            (Field(NODE, "Where", alive=True),),
            lambda given: {NODE: given.get(NODE, "")},
            REMOVED,
            lambda answer: _removed(answer, "removed"),
            lambda answer: _removed(answer, "will remove"),
            of_nodes=True,
        ),
    )
}
