"""Meta: who subscribed to a destination, how far each client has acknowledged, and which batches are in flight.

In: subscriptions, acknowledged positions. Out: cursors and identities; changes, to whichever backend makes them durable
(memory, files, ZooKeeper). All state belongs to the reactor thread; batches are never stored.
Errors: BatchUnknown, BatchNotFirst, NotSubscribed; from backends MetaWriteFailed, MetaUnreadable and Fenced.
"""
