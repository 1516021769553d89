"""The store: what a stream has decoded and its client has not acknowledged yet.

In: segments, from the stream's source thread. Out: batches of memoryviews over them, to the reactor thread.
The ring owns the segments and is the only thing the two threads share: one lock, and a condition for room.
Errors: StoreFull and RingClosed towards the source, AckUnmatched towards the client.
"""
