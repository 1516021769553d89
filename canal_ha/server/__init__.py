"""canal's TCP port, on Twisted: clients' bytes in, replies out; everything lives on the reactor thread.

`CanalService` listens and ends in order; each connection moves bytes between its transport and a wire session and hands
requests to `Destinations`, one after the other. `RequestCounters` is what the metrics read. A connection owns its
session, its outbox and its timers. Peers that break the protocol lose their connection; what a request raises becomes
an error packet.
"""
