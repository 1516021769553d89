"""The source: reads the binlog of MySQL or MariaDB, or a directory of binlog files.

In: a configured source, a position, and a decoder for the bytes. Out: segments, in binlog order, from one thread for
each dump; positions; SHOW CREATE TABLE texts. A `Dump` owns its connections and its thread, and reconnects;
mysql-replication drives the protocol. Errors: SourceUnavailable and SourceRefused are tried again (the text of a
SourceRefused names the statement to run); PositionLost, MalformedEvent and TableUnknown stop the stream.
"""
