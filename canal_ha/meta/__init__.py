"""Meta: the subscriptions, cursors and batches in flight of each destination.

In: subscriptions, acknowledged positions. Out: cursors and identities; changes, which a backend makes durable (memory,
files, ZooKeeper). The reactor thread owns all state; batches are never stored.
Errors: BatchUnknown, BatchNotFirst, NotSubscribed; from backends MetaWriteFailed, MetaUnreadable and Fenced.
"""
