"""Decoding: bytes of a MySQL dump in, segments and control events out.

Pure: the caller owns the connection and passes the received bytes to `Decoder.feed`. The state (journal, open
transaction, plans) belongs to one Decoder, one stream, one thread. Raises MalformedEvent, TableUnknown,
ColumnExposed.
"""
