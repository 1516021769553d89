"""Decoding: bytes of a MySQL dump in, segments and control events out.

Pure: the caller owns the connection and asks `Decoder.feed` for what its bytes mean. State (journal, open
transaction, plans) belongs to one Decoder, one stream, one thread. Raises MalformedEvent, TableUnknown.
"""
