"""MySQL or MariaDB in: dump bytes to a decoder that is handed in, questions to the server, where to start.

In: a configured source and a position. Out: segments, in binlog order, from a thread per dump; positions; SHOW CREATE
TABLE texts. A `Dump` owns its connections, its thread and the reconnecting; mysql-replication drives the protocol.
Errors: SourceUnavailable (try again), SourceRefused (a person runs the statement in the text; tried again),
PositionLost, MalformedEvent and TableUnknown (the stream stops).
"""
