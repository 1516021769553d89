"""Unready: something that a node should do, and does not do now."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Unready:
    """Why a node does not serve what it should.

    destination: name of the destination; "" for the node itself.
    text: what is missing.
    """

    destination: str
    text: str
