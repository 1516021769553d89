# The numbers of codes.py as C constants.

cdef enum:
    TEXT = 1
    BINARY = 2
    INTEGER = 3
    DECIMAL = 4
    DOUBLE = 5
    SINGLE = 6
    BOOLEAN = 7
    DAY = 8
    INSTANT = 9
    OTHER = 0
    DOCUMENT = 10
    CLOCK = 11
    ZONED = 12
    NULL = -1
    TRANSACTIONBEGIN = 1
    ROWDATA = 2
    TRANSACTIONEND = 3
    EVENT_INSERT = 1
    EVENT_UPDATE = 2
    EVENT_DELETE = 3
    EVENT_QUERY = 7
    INSERT = 0
    UPDATE = 1
    DELETE = 2
    DDL = 3
    READ = 4
    DONE = 0
    TABLE = 1
    LAYOUT = 2
    FULL = 3
    STATEMENT = 4
