"""The cluster: which node runs which destination, and the proof of ownership in every durable write.

In: one session, the node's address, the destinations it can run. Out: Owner.start and stop, with an Ownership for each
destination: `epoch`; `lease_ok()`, to be checked before each GET, ACK and flush; `meta(...)`, the fenced cursor store;
`failed()`. A node:

    session = ZooKeeperSession(config.zk_servers, access=config.zk_access, reactor=reactor, timeout_ms=6000)
    cluster = Cluster(config, reactor, session, owner, status_address)
    await cluster.start(); cluster.add("example"); await cluster.remove("example"); await cluster.stop()

The reactor thread owns all state. Writes raise ZooKeeperUnavailable, TransactionRefused or Fenced. `overview` and
`cursors` serve commands and block.
"""
