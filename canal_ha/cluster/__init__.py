"""ZooKeeper: who runs which destination, and the proof of it in every durable write. Imports kazoo.

In: one session, the node's address, what it can run. Out: Owner.start/stop with an Ownership per destination: `epoch`,
`lease_ok()` (ask it in the GET, ACK and flush paths), `meta(...)`, the fenced cursor store, `failed()`. In a node:

    session = Session(config.zk_servers, timeout_ms=config.zk_session_timeout_ms, auth=config.zk_auth, reactor=reactor)
    cluster = Cluster(config, reactor, session, owner, status_address)
    await cluster.start(); cluster.add("example"); await cluster.remove("example"); await cluster.stop()

All state lives on the reactor thread. Writes raise ZooKeeperUnavailable, TransactionRefused or Fenced.
"""
