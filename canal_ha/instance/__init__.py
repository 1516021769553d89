"""Instances: one destination each, wired together; lives on the reactor thread.

In: requests of clients (through `Embedded`), the source's rows (through a feed's thread into each stream's ring).
Out: messages, durable cursors, status figures. An Instance owns its table history, its Meta and one Stream per
subscribed client id. Raises what canal raises: NotRunningHere, NotSubscribed, BatchUnknown, BatchNotFirst; and
TooManyStreams, PositionLost, TableUnknown, MalformedEvent for a stream that cannot go on.
"""
