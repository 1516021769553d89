"""Load on one real node: idle and active connections, clients that misbehave, large rows; memory, stalls, delays.

In: counts of clients and seconds. Out: figures and the bounds they break. Everything runs on this machine: the
databases, the node in a process of its own, and all clients on one asyncio loop in this process.
"""
