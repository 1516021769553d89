"""The status endpoint: what instances say of themselves in, JSON over HTTP out, on loopback unless told otherwise.

Owns its listening port only. It changes nothing and shows no passwords. A port that is taken is replaced by a free one.
"""
