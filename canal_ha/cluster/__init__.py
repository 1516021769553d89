"""ZooKeeper: who runs which destination, and the proof of it that every durable write carries. Only importer of kazoo.

In: one kazoo session, the node's address, what the node can run. Out: Owner.start/stop, and an Ownership per destination
with `epoch`, `lease_ok()` (ask it in the GET, ACK and flush paths) and `meta(...)`, the fenced cursor store. Wiring:

    session = Session(config.zk_servers, timeout_ms=config.zk_session_timeout_ms, auth=config.zk_auth, reactor=reactor)
    cluster = Cluster(config, reactor, session, owner, status_address)      # owner: async start(d, ownership), stop(d, why)
    await cluster.start(); cluster.add(destination); await cluster.remove(destination); await cluster.stop()

All state lives on the reactor thread. ZooKeeperUnavailable, TransactionRefused and Fenced come out of writes.
"""
