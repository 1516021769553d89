"""Clients of any canal server, ours or Java's: blocking, or for asyncio. They need no reactor.

In: a server's address, a list of them, or ZooKeeper; a destination, a client id. Out: messages of entries, plain typed
rows, or Arrow record batches. An AsyncConnector owns its connection and wire session and belongs to one event loop; an
AsyncClusterConnector finds nodes, waits until it is the active process, continues after fail-overs, and has a thread
for ZooKeeper. SimpleConnector and ClusterConnector run the same coroutines on the calling thread. Raises ConnectionLost
(connect again; a cluster connector does), ServerRefused (an error packet), RemoteProtocolError (the peer is not a canal
server) and LocalProtocolError (calls in the wrong order). ConnectorStopped and WaitedTooLong end a cluster connector's
waiting.
"""
