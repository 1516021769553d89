"""Clients of any canal server, ours or Java's. They block and need no reactor.

In: a server's address, a list of them, or ZooKeeper; a destination, a client id. Out: messages of entries, plain typed
rows, or Arrow record batches. A SimpleConnector owns its socket and wire session and belongs to one thread. A
ClusterConnector finds nodes, waits until it is the active process, continues after fail-overs, and has a thread for
ZooKeeper. Raises ConnectionLost (connect again; a cluster connector does), ServerRefused (an error packet),
RemoteProtocolError (the peer is not a canal server) and LocalProtocolError (calls in the wrong order). ConnectorStopped
and WaitedTooLong end a cluster connector's waiting.
"""
