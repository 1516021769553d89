"""Snapshots under faults on real parts: a copy that begins with a snapshot has to equal the table, row by row.

`verdict` decides and is pure; `copy` is what the client keeps; `stage` holds the servers, `writers` changes their rows,
`run` leads through the faults. The command is `python -m lab.exactness`.
"""
