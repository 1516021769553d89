"""Which ports other machines reach, and the rule that such a node needs accounts."""

from __future__ import annotations

from ipaddress import ip_address

from canal_ha.config import keys
from canal_ha.config.model import CanalConfig
from canal_ha.errors import FileUnusable


def is_loopback(bind: str) -> bool:
    """Return whether a port that listens on this address is for its own machine only. bind: "" is every address."""
    if bind.lower() == "localhost":
        return True
    try:
        return ip_address(bind).is_loopback
    except ValueError:  # "" and names
        return False


def check_listeners(config: CanalConfig) -> str:
    """Return a warning about a port without accounts that is open to other machines; "" if there is none.

    Raises FileUnusable, with the line to add, if the configuration does not say canal.insecure.
    """
    opened = _opened_without_accounts(config)
    if opened is None:
        return ""
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
