"""Instances: one destination each. Everything runs on the reactor thread, except the feeds.

In: requests of clients (through `Embedded`), the source's rows (through a feed's thread into each stream's ring).
Out: messages, durable cursors, status figures. An Instance owns its Meta and one Stream for each subscribed client id.
It is given its source as an `Origin`, and the right to run as a `Claim`. It raises what canal raises: NotRunningHere,
NotSubscribed, BatchUnknown, BatchNotFirst. A stream that cannot go on raises QuotaReached, PositionLost,
TableUnknown, MalformedEvent.
"""
