cimport canal_ha.decode.kernel.codes as k
cimport canal_ha.decode.kernel.entries as e
cimport canal_ha.decode.kernel.primitives as p
cimport cython
from libc.stdint cimport int64_t

cdef class WholeTransactions:
    cdef public Py_ssize_t count, start, stop, sub, journal_start, journal_stop, gtid_start, gtid_stop, _done, _open
    cdef public int64_t newest_ms, offset, server_id, time_ms
    cdef public dict rows
    cdef public list _ahead
    cdef public bytes _schema, _table

    @cython.locals(newest_ms=int64_t, rows=Py_ssize_t)
    cdef int _read(self, e.Entries entry) except -1
    @cython.locals(src=bytes)
    cdef bint _is_table_of(self, e.Entries entry) except -1
    cdef int _turn(self, e.Entries entry) except -1
    cdef int _end(self, e.Entries entry, int64_t newest_ms) except -1
    @cython.locals(name=bytes)
    cdef int _flush(self) except -1
