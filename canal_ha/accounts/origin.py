"""Whose allowance an address uses."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address, ip_network

_NETWORK_BITS = 64  # of IPv6: whoever has one address has all of such a network


def origin_of(peer: str) -> str:
    """Return the address itself; in IPv6 its network. peer: `/ip`; any other text is returned as it is."""
    try:
        address = ip_address(peer.removeprefix("/"))
    except ValueError:
        return peer
    if not isinstance(address, IPv6Address):
        return peer
    if address.ipv4_mapped:
        return f"/{address.ipv4_mapped}"
    return f"/{ip_network((int(address), _NETWORK_BITS), strict=False)}"
