"""A cluster under faults: its members, its clients, and what judges deliveries and ZooKeeper's own history.

In: running servers of `lab`, links of `lab.proxy`. Out: verdicts as plain data. Used by the tests of faults and by
`lab.chaos`.
"""
