"""Shared data types: positions, segments, batches, identities, tables.

The values are frozen and valid once constructed. This room does no IO and imports nothing of ours but errors.
"""
