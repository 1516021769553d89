"""canal's TCP protocol, sans-IO: bytes in, typed requests and replies out, and back.

`ServerSession` and `ClientSession` are the two halves of a conversation; an edge moves their bytes. MESSAGES packets
are built around wire-ready frames, which nobody parses again. A session owns its input buffer and what is outstanding.
Raises RemoteProtocolError when the peer breaks the protocol (close the connection), LocalProtocolError when we would,
and, on the client's side, ServerRefused for an error packet.
"""
