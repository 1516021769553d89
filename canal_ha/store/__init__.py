"""The store: entries that a stream has decoded and its client has not acknowledged.

In: segments, from the stream's source thread. Out: batches of memoryviews over them, to the reactor thread.
The ring owns the segments. The two threads share nothing else: it has one lock, and a condition to wait for room.
Errors: StoreFull and RingClosed to the source, AckUnmatched to the client.
"""
