"""Which ports other machines reach, and the rules for them: accounts, and no password that everybody knows."""

from __future__ import annotations

from ipaddress import ip_address

from canal_ha.config import keys
from canal_ha.config.model import CanalConfig
from canal_ha.errors import FileUnusable

HASH_OF_ADMIN = "4acfe3202a5ff5cf467898fc58aab1d615029441"  # of the password admin: docs/protocol.md#scramble
_WARNING_OF_KNOWN_PASSWORD = (
    f"{keys.CONSOLE_PASSWD.name} is the hash of the password admin, which everybody knows, and canal.insecure = true:"
    " everybody who reaches the admin port can stop this node"
)


def is_loopback(bind: str) -> bool:
    """Return whether a port that listens on this address is for its own machine only. bind: "" is every address."""
    if bind.lower() == "localhost":
        return True
    try:
        return ip_address(bind).is_loopback
    except ValueError:  # "" and names
        return False


def check_listeners(config: CanalConfig) -> str:
    """Return a warning about a port that is open to other machines, without accounts or as admin/admin; "" if none is.

    Raises FileUnusable, with the line to add, if the configuration does not say canal.insecure.
    """
    opened = _opened_without_accounts(config)
    if opened is None:
        return _WARNING_OF_KNOWN_PASSWORD if config.insecure and _others_know_password(config) else ""
    key, bind = opened
    what = f"opens a port to other machines without accounts ({key} = {bind or 'every address'})"
    if config.insecure:
        return f"{config.main_file} {what}, because canal.insecure = true: everybody there can read every row"
    raise FileUnusable(
        str(config.main_file),
        f"{what}: everybody there could read every row and delete every cursor. To go on like that, add this line:"
        " canal.insecure = true. To close it, set canal.accounts.file, or canal.user and canal.passwd; or listen on"
        " this machine only: canal.ip = 127.0.0.1"
        + ("; for canal.admin.port alone, set canal.admin.passwd" if _manages_without_password(config) else ""),
        key=key,
    )


def admin_port_refusal(config: CanalConfig) -> FileUnusable | None:
    """Return why canal's admin port stays closed although canal.admin.port is set; None if nothing keeps it closed.

    canal's stock file sets the port and the password "admin". An earlier version of canal-ha ignored both keys, so a
    node must neither open the port after an upgrade nor stop serving because of it.
    """
    if config.insecure or not _others_know_password(config):
        return None
    place = config.layers.find(keys.CONSOLE_PASSWD.name)
    return FileUnusable(
        place.file if place else str(config.main_file),
        f"{keys.CONSOLE_PASSWD.name} is the hash of the password admin, which canal ships and everybody knows; so"
        f" canal's admin port stays closed ({keys.CONSOLE_PORT.name} = {config.admin_port}). To open it, write the hash"
        f" of another password, or leave {keys.CONSOLE_PASSWD.name} blank: then only the accounts of the node log in"
        f" there; or listen on this machine only: {keys.IP.name} = 127.0.0.1. If nobody needs it, set"
        f" {keys.CONSOLE_PORT.name} = 0",
        place.line if place else 0,
        keys.CONSOLE_PASSWD.name,
    )


def _others_know_password(config: CanalConfig) -> bool:
    """Return whether everybody who reaches the admin port from another machine could log in there as admin/admin."""
    return config.admin_port > 0 and config.admin_passwd == HASH_OF_ADMIN and not is_loopback(config.ip)


def _manages_without_password(config: CanalConfig) -> bool:
    """Return whether canal's admin protocol has no account of its own. It then tells what runs, and does nothing."""
    return config.admin_port > 0 and not config.admin_passwd


def _opened_without_accounts(config: CanalConfig) -> tuple[str, str] | None:
    """Return key and address of the first such port."""
    if config.accounts_file or config.passwd:
        return None
    binds = (
        (keys.IP.name, config.ip, not config.without_netty or _manages_without_password(config)),
        (keys.METRICS_BIND.name, config.metrics_bind, config.metrics_port > 0),
        (keys.ADMIN_BIND.name, config.admin_http_bind, config.admin_http_port >= 0),
    )
    return next(((key, bind) for key, bind, listens in binds if listens and not is_loopback(bind)), None)
