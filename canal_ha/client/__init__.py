"""Clients of any canal server, ours or Java's: blocking, without a reactor.

In: a server's address, a list of them, or ZooKeeper; a destination, a client id. Out: messages of entries, plain typed
rows, or Arrow record batches. A SimpleConnector owns its socket and wire session and belongs to one thread. A
ClusterConnector adds a thread for ZooKeeper, finds nodes, waits for its turn and goes on over fail-overs. Raises
ConnectionLost (connect again; a cluster connector does), ServerRefused (the server said no), RemoteProtocolError (the
peer is no canal server), LocalProtocolError (called out of order); ConnectorStopped and WaitedTooLong end a cluster
connector's waiting.
"""
