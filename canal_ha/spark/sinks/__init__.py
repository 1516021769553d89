"""Where pipelines write. Each sink applies each change at most once, by its segment, in whatever way its target can.

In: a Batch. Out: tables, files, lines. State is the target's own: Delta's application transactions, a row in MySQL, a
directory's name. Raises SinkRefused for changes that a target cannot hold; other failures end the query, which starts
again from its checkpoint.
"""
