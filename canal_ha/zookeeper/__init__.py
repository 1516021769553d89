"""ZooKeeper: the tree's paths, fenced operations, the lease, and the two modules that import kazoo.

In: paths and operations. Out: znodes, versions, and changes of the session's state. `port` keeps a session alive and
runs every callback on its owner's thread; nodes and clients use it. `reading` blocks; commands use it. The other
modules are pure. Errors: ZooKeeperUnavailable, TransactionRefused.
"""
