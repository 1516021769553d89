"""Simulation only: virtual time, an in-memory ZooKeeper, and a cluster of nodes that run the real election on both.

In: a seed. Out: a run that repeats exactly, and Broken when an invariant fails. Nothing of the product imports this
room. The in-memory ZooKeeper passes the same tests as the real one (tests/zookeeper/test_conformance.py).
"""
