"""The status endpoint: the state of instances in, JSON over HTTP out, on loopback by default.

Owns only its listening port; if the port is in use, it takes a free one. It shows no passwords. Its only change is to
switch a destination to its other source, for an account of the role admin. On a node without accounts, who
can read the operator's token may do that.
"""
