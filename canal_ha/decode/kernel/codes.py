"""Small numbers that the readers of entries share with their callers; codes.pxd repeats them."""

# how a column's values are stored, in Arrow's memory layout
TEXT = 1  # UTF-8 behind offsets of 32 bits
BINARY = 2  # bytes behind offsets of 32 bits, one for each Latin-1 character of the text
INTEGER = 3  # signed, 1, 2, 4 or 8 bytes
DECIMAL = 4  # 128 bits, by a scale
DOUBLE = 5
SINGLE = 6
BOOLEAN = 7  # a byte each, 0 or 1
DAY = 8  # 32 bits, since 1970
INSTANT = 9  # 64 bits, microseconds since 1970

# more forms of the values in messages; see envelopes
OTHER = 0  # the caller's function encodes them all
DOCUMENT = 10  # a JSON text
CLOCK = 11  # a time or duration
ZONED = 12  # date and time in UTC

NULL = -1  # instead of a value's start

# EntryProtocol's EntryType and EventType
TRANSACTIONBEGIN = 1
ROWDATA = 2
TRANSACTIONEND = 3
EVENT_INSERT = 1
EVENT_UPDATE = 2
EVENT_DELETE = 3
EVENT_QUERY = 7

# what happened to a row, in `ops`: the event's type minus one, if there is one
INSERT = 0
UPDATE = 1
DELETE = 2
DDL = 3
READ = 4  # inserted by a snapshot

# what `step` returns
DONE = 0
TABLE = 1
LAYOUT = 2
FULL = 3
STATEMENT = 4
