"""Clusters in virtual time: real nodes and instances on a ZooKeeper, a source, clocks and a network in memory.

In: a seed. Out: a run that repeats exactly, and the names of the promises that it broke. `python -m lab.simulation`
runs many seeds. Real are the election, the cursor stores, the instances with their streams and rings, and the
conversations of the server. The in-memory ZooKeeper passes the same tests as the real one
(tests/zookeeper/test_conformance.py).

    time.py        virtual time; processes with clocks of their own that drift, step and stop
    zookeeper.py   the tree, sessions, watches, a leader that commits late, followers that lag
    session.py     a node's session with it
    source.py      two servers with one sequence of transactions, and the feeds that read them
    threads.py     rings whose source does not block a thread
    node.py        a node: its cluster, its instances, and the conversations with its clients
    program.py     a client program
    moves.py       a move that somebody asks for, by the real Mover
    referee.py     the promises
    storm.py       the faults, and one run from start to end
"""
