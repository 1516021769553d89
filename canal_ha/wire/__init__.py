"""canal's TCP protocol, sans-IO: bytes in, typed requests and replies out, and back.

`ServerSession` and `ClientSession` are the two sides of a connection; an edge moves their bytes. MESSAGES packets are
built around wire-ready frames, which are not parsed again. A session owns its input buffer and its open requests.
Raises RemoteProtocolError if the peer breaks the protocol (close the connection), LocalProtocolError if we would, and
on the client's side ServerRefused for an error packet.
"""
