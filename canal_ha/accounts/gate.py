"""The gate: every request of every port, and who may make it. What the table does not name is refused."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from canal_ha.accounts.account import Account, AccountRole

STATUS = "status"
DESTINATION_STATUS = "status of a destination"
METRICS = "metrics"
PROBE = "probe"
SWITCH = "switch of the source"
SNAPSHOT = "snapshot of tables"
CONFIGURATION = "configuration of the node"
DESTINATION_CONFIGURATION = "configuration of a destination"
FRONT = "log-in and files of the page"
PAGE = "page"
DESTINATION_PAGE = "page of a destination"
CLUSTER = "status of the cluster"
SEEN = "what a node has seen"
LAG = "lag of a destination"
LOG = "log of a destination"
NODE_LOG = "log of a node"
TABLES = "tables of a destination"
OPENAPI = "description of the API"
DESTINATIONS = "list of destinations"
PAUSE = "pause of a destination"
RESUME = "resumption of a destination"
MOVE = "move of a destination"
REBALANCE = "rebalance of the cluster"
CURSOR = "change of a cursor"
EVENTS = "changes of the cluster"
ADD = "addition of a destination"
REMOVE = "removal of a destination"


class Need(Enum):
    """What a request needs."""

    NOTHING = "nothing"
    ROWS = "the role read, the destination and the client id"
    ACCOUNT = "any account"
    DESTINATION = "an account with the destination"
    EVERY_DESTINATION = "an account with the destination *"
    EVERYTHING = "the role admin and the destination *"
    ACTION = "the role admin, the destination, and the client id if the action has one"
    NEVER = "a server sends it, or nobody does"


NEEDS: Mapping[str, Need] = {
    # packets of canal's protocol, by PacketType
    "CLIENTAUTHENTICATION": Need.NOTHING,
    "SUBSCRIPTION": Need.ROWS,
    "UNSUBSCRIPTION": Need.ROWS,
    "GET": Need.ROWS,
    "DUMP": Need.ROWS,
    "CLIENTACK": Need.ROWS,
    "CLIENTROLLBACK": Need.ROWS,
    "PACKAGETYPECOMPATIBLEPROTO2": Need.NEVER,
    "HANDSHAKE": Need.NEVER,
    "ACK": Need.NEVER,
    "MESSAGES": Need.NEVER,
    "SHUTDOWN": Need.NEVER,
    "HEARTBEAT": Need.NEVER,
    # requests of canal's admin protocol, by packet type and action or, of logs, type
    "SERVER check": Need.ACCOUNT,
    "SERVER list": Need.ACCOUNT,
    "SERVER start": Need.EVERYTHING,
    "SERVER stop": Need.EVERYTHING,
    "SERVER restart": Need.EVERYTHING,
    "INSTANCE check": Need.DESTINATION,
    "INSTANCE start": Need.ACTION,
    "INSTANCE stop": Need.ACTION,
    "INSTANCE restart": Need.ACTION,
    "INSTANCE release": Need.ACTION,
    "LOG server": Need.EVERYTHING,
    "LOG instance": Need.ACTION,
    # requests over HTTP
    PROBE: Need.NOTHING,
    STATUS: Need.ACCOUNT,
    DESTINATION_STATUS: Need.DESTINATION,
    METRICS: Need.EVERY_DESTINATION,
    SWITCH: Need.ACTION,
    SNAPSHOT: Need.ACTION,
    CONFIGURATION: Need.EVERYTHING,
    DESTINATION_CONFIGURATION: Need.ACTION,
    FRONT: Need.NOTHING,
    PAGE: Need.ACCOUNT,
    DESTINATION_PAGE: Need.DESTINATION,
    CLUSTER: Need.ACCOUNT,
    SEEN: Need.ACCOUNT,
    LAG: Need.DESTINATION,
    LOG: Need.ACTION,
    NODE_LOG: Need.EVERYTHING,
    TABLES: Need.ACTION,
    OPENAPI: Need.ACCOUNT,
    DESTINATIONS: Need.ACCOUNT,
    PAUSE: Need.ACTION,
    RESUME: Need.ACTION,
    MOVE: Need.ACTION,
    REBALANCE: Need.EVERYTHING,
    CURSOR: Need.ACTION,
    EVENTS: Need.ACCOUNT,
    ADD: Need.EVERYTHING,
    REMOVE: Need.EVERYTHING,
}


def refusal(who: Account | None, kind: str, destination: str = "", client_id: int | None = None) -> str:
    """Return why a request is refused; "" if it is allowed.

    who: the account that logged in; None before a login.
    kind: a key of NEEDS; any other is refused.
    destination: the one that the request names; "" if none.
    client_id: the one that the request names; None if none.
    """
    need = NEEDS.get(kind, Need.NEVER)
    if need is Need.NOTHING:
        return ""
    if need is Need.NEVER:
        return f"nobody may send {kind}"
    if who is None:
        return f"{kind} needs a login"
    return _lacking(who, need, destination, client_id)


def _lacking(who: Account, need: Need, destination: str, client_id: int | None) -> str:
    if need is Need.ACCOUNT:
        return ""
    if need in (Need.ACTION, Need.EVERYTHING) and not who.name and AccountRole.ADMIN not in who.roles:
        return "only with the node's logs/canal/operator.token (give --conf), or with an account of the role admin"
    if need is Need.EVERYTHING and AccountRole.ADMIN not in who.roles:
        return f"{_named(who)} has no role admin"
    if need in (Need.EVERY_DESTINATION, Need.EVERYTHING):
        return "" if "*" in who.destinations else f"{_named(who)} needs destinations = ['*'] for this"
    if not destination or not who.reaches(destination):
        return f"{_named(who)} has no right on destination:{destination}"
    if need is Need.DESTINATION:
        return ""
    if need is Need.ACTION:
        if AccountRole.ADMIN not in who.roles:
            return f"{_named(who)} has no role admin"
        if client_id is None:
            return ""
    elif AccountRole.READ not in who.roles:
        return f"{_named(who)} has no role read"
    if client_id is None or not who.has_client(client_id):
        return f"{_named(who)} has no right on client id {client_id} of destination:{destination}"
    return ""


def _named(who: Account) -> str:
    return f"account {who.name}" if who.name else "this peer"
