"""The nouns that rooms hand each other: positions, segments, batches, identities, tables.

Frozen data, valid once constructed; no IO, nothing imported but errors.
"""
