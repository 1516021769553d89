"""canal's TCP port, on Twisted: clients' bytes in, replies out. Everything here runs on the reactor thread.

`CanalService` listens, and stops in order. A `CanalConnection` moves bytes; its `Conversation` hands requests to
`Destinations`, one after the other. A connection owns its session, its outbox and its timers. The metrics read
`RequestCounters`. A client that breaks the protocol loses its connection. A failed request gets an error packet.
"""
