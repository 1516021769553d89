"""The targets of pipelines. Each sink applies each change at most once, identified by its segment.

In: a MicroBatch. Out: tables, files, lines. The target stores the state: Delta's application transactions, a row in
MySQL, the name of a directory. Raises SinkRefused for changes that a target cannot hold. Other failures end the query,
which restarts from its checkpoint.
"""
