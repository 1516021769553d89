"""The status endpoint: the state of instances and of the cluster in, JSON and a web page over HTTP out.

Listens on loopback by default; if the port is in use, it takes a free one. Owns its port, the sessions of browsers and
what it has seen of the cluster, all in memory. It shows no passwords. It switches sources and changes snapshots, for an
account of the role admin. On a node without accounts, who can read the operator's token may do that.
"""
