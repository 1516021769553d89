"""Positions: where to start, where to resume, and where the same transaction is on another server."""
