"""The status endpoint: what instances say of themselves in, JSON over HTTP out, on loopback unless told otherwise.

Owns its listening port only. It shows no passwords, and changes nothing but which of its two servers a destination
reads, on request from this machine. A port that is taken is replaced by a free one.
"""
