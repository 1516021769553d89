"""Clients of any canal server, ours or Java's: blocking, without a reactor.

In: a server's address, a destination, a client id. Out: messages of entries, or plain typed rows. A connector owns its
socket and wire session and belongs to one thread; only `interrupt` may come from elsewhere. Raises ConnectionLost
(connect again), ServerRefused (the server said no), RemoteProtocolError (the peer is no canal server) and
LocalProtocolError (called out of order).
"""
