"""Positions: where to start, where to resume, and where the same transaction stands on another server."""
