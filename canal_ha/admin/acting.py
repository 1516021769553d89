"""The forms of the page: ask, let a person confirm, act, and show the effect. Reactor thread.

Most actions are carried out where the destination runs. An action that changes the files of nodes is carried out on one
node or on all, one after the other; the first node that refuses ends it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twisted.web.server import Request

from canal_ha.admin.actions import Action
from canal_ha.admin.cluster_view import ClusterView, destination_in
from canal_ha.admin.control import SUCCESS, Control
from canal_ha.admin.forms import DESTINATION, EVERY_NODE, NODE, Form
from canal_ha.admin.front import check_form, fields_of
from canal_ha.admin.guest import Guest
from canal_ha.admin.html import html
from canal_ha.admin.routes import GET
from canal_ha.admin.templates import link, render
from canal_ha.client.node_http import post
from canal_ha.config.effective import shown_text
from canal_ha.errors import LocalProtocolError, NodeUnreachable
from canal_ha.model.surrogates import check_json
from canal_ha.server.audit import FAILED, OK
from canal_ha.server.entrance import Entrance
from canal_ha.server.http_login import refuse

ACTION_MOST_S = 60.0  # of an action on another node


class Acting:
    """See the module.

    node: address of this one, as in ZooKeeper.
    entrance: checks forms, and has the audit log.
    view: looks at the cluster.
    actions: by kind of request.
    """

    def __init__(self, node: str, entrance: Entrance, view: ClusterView, actions: Mapping[str, Action]) -> None:
        self._node = node
        self._entrance = entrance
        self._view = view
        self._actions = actions
        self._control = Control(entrance.audit)

    async def page(self, request: Request, guest: Guest, form: Form, name: str, check: Callable[..., None]) -> bytes:
        """Answer one request for a form.

        request: of HTTP.
        guest: who asks.
        form: what to do.
        name: of the destination; "" if the path has none.
        check: raises HttpRefusal if the guest may not act on a client id.
        Raises HttpRefusal.
        """
        # An action on "every node" would leave out nodes that an older picture does not have yet.
        document = await self._view.look(guest, fresh=request.method not in GET)
        it = None if form.of_cluster else destination_in(document, name)
        owner = it["owner"] if it else ""
        alive = [each["address"] for each in document["nodes"] if each["state"] == "up"]
        hint = ""
        if not guest.account.name:  # another node would ask for its own operator's token
            alive = [self._node]
            hint = " With the operator's token you act on this node only: use the page of each other node."

        def show(step: str, code: int = 200, **more: Any) -> bytes:
            shown = {
                "problem": "",
                "given": {field.name: "" for field in form.fields},
                "owner": "" if form.of_nodes else owner,
                "back": link(name) if it else "/",
                "it": None,
                **more,
            }
            return html(
                request,
                code,
                render(
                    "action.html",
                    guest=guest,
                    here="",
                    form=form,
                    destination=name,
                    step=step,
                    clients=it["clients"] if it else [],
                    nodes=it["stand_by"] if it else [],
                    alive=alive,
                    every_node=EVERY_NODE,
                    code=code,
                    **shown,
                ),
            )

        if request.method in GET:
            return show("ask")
        if guest.session is None:
            refuse(self._entrance, request, guest.actor, 403, "actions on the page need a log-in on the page")
        given = fields_of(request)
        check_form(self._entrance, request, guest.session.csrf, given)
        action = self._actions[form.kind]
        again = {field.name: given.get(field.name, "") for field in form.fields}
        try:
            body = form.body(given) if given.get("step") != "do" else json.loads(given.get("body", ""))
            check_json(body)
            wanted = action.read(body)
            if wanted is None:
                raise ValueError(f"Check what you filled in. {action.usage}")
            where = _chosen(form, body, alive, document, name, hint) if form.of_nodes else (owner,)
        except (ValueError, RecursionError) as error:
            return show("ask", 400, problem=str(error), given=again)
        check(action.client_id(wanted))
        name = name or str(body.get(DESTINATION, ""))
        if given.get("step") != "do":
            plan = ""
            if form.planned:
                dry = {**body, "dry_run": True}
                code, told = await self._carry_out(guest, form, action, where, name, dry)
                if code != SUCCESS:
                    return show("ask", code, problem=str(told["error"]), given=again)
                plan = form.planned(told)
            files = {field.name for field in form.fields if field.properties}
            facts = [
                (key.replace("_", " "), shown_text(value) if key in files else _shown(value))
                for key, value in body.items()
            ]
            return show("confirm", facts=facts, plan=plan, body=json.dumps(body))
        code, told = await self._carry_out(guest, form, action, where, name, body)
        outcome = form.done(told) if code == SUCCESS else str(told["error"])
        after = await self._view.look(guest, fresh=True)
        still = [each for each in after["destinations"] if each["destination"] == name]
        return show(
            "done",
            code,
            outcome=outcome,
            it=still[0] if it and still else None,
            back=link(name) if still else "/",
        )

    async def _carry_out(
        self, guest: Guest, form: Form, action: Action, where: Sequence[str], name: str, body: Mapping[str, Any]
    ) -> tuple[int, dict[str, Any]]:
        """Act on the nodes; return the HTTP status, and the answer, or of several the answers as `nodes`."""
        answers: list[dict[str, Any]] = []
        for node in where:
            code, told = await self._carry_out_on(guest, form, action, node, name, body)
            if code != SUCCESS:
                done = ", ".join(str(each["node"]) for each in answers)
                changed = f"; done before on {done}" if done and not body.get("dry_run") else ""
                return code, {**told, "error": f"{told['error']}{changed}"}
            answers.append(told)
        return SUCCESS, {"nodes": answers} if form.of_nodes else answers[0]

    async def _carry_out_on(
        self, guest: Guest, form: Form, action: Action, node: str, name: str, body: Mapping[str, Any]
    ) -> tuple[int, dict[str, Any]]:
        """Act on a node, or here if any node can do it; return the HTTP status and the answer."""
        shape, wanted = form.shape, action.wanted(body)
        if shape is None or node in (self._node, ""):
            return await self._control.carry_out(action, name, wanted, guest)
        details = {**action.facts(wanted), "node": node}

        def write_down(result: str) -> None:
            client_id = action.client_id(wanted)
            self._entrance.audit.ordered(
                action.name, guest.actor, result, destination=name, client_id=client_id, details=details
            )

        def ask() -> dict[str, Any]:
            url, access = self._view.route(guest, node)
            return post(url, access, name, form.part, body, shape, LocalProtocolError, ACTION_MOST_S)

        try:
            told = await self._view.in_thread(ask)
        except (LocalProtocolError, NodeUnreachable) as error:
            details["error"] = str(error)
            write_down(FAILED)
            return 409, {"error": f"{node}: {error}"}
        write_down(OK)
        return SUCCESS, told


def _chosen(
    form: Form, body: Mapping[str, Any], alive: Sequence[str], document: Mapping[str, Any], name: str, hint: str
) -> Sequence[str]:
    """Return the nodes that a person has chosen; of all nodes, those on which there is something to do.

    form, body: what to do.
    alive: the nodes that answer.
    document: of the cluster, as ClusterView.look returns it.
    name: of the destination; "" if the body has it.
    hint: why there may be other nodes, for the error.
    Raises ValueError.
    """
    node = str(body.get(NODE))
    if node == EVERY_NODE:
        name = name or str(body.get(DESTINATION))
        found = next((each for each in document["destinations"] if each["destination"] == name), None)
        having = {found["owner"], *found["stand_by"]} if found else set[str]()
        chosen = [each for each in alive if (each in having) is not form.of_cluster]
        if not chosen:
            has = "Each" if form.of_cluster else "None"
            raise ValueError(f"{has} of the nodes on which you can act here has {name}: {', '.join(alive)}.{hint}")
        return chosen
    if node not in alive:
        raise ValueError(f"{node} is none of the nodes that answer: {', '.join(alive)}")
    return (node,)


def _shown(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return {True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else str(value)
