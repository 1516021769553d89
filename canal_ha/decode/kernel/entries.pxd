cimport canal_ha.decode.kernel.codes as k
cimport canal_ha.decode.kernel.fields as f
cimport canal_ha.decode.kernel.kinds as e
cimport canal_ha.decode.kernel.primitives as p
cimport canal_ha.decode.kernel.repeats as r
cimport canal_ha.decode.kernel.texts as t
cimport cython
from cpython.array cimport array as c_array
from libc.stdint cimport int64_t, uint64_t

cdef int _ENTRY_TYPES, _EVENT_TYPES, _LENGTH_SHIFT, _NUMBER_SHIFT, _SHORTEST_REPLY
cdef bytes _SNAPSHOT, _PARTIAL, _OWN_GTID
cdef Py_ssize_t _SNAPSHOT_SIZE, _PARTIAL_SIZE, _OWN_GTID_SIZE
cdef int64_t _LARGEST_MS

@cython.locals(stop=Py_ssize_t, pos=Py_ssize_t, size=Py_ssize_t, shift=int, byte=Py_ssize_t)
cpdef bint only_frames(bytes src, Py_ssize_t start) except -1

@cython.locals(stop=Py_ssize_t, pos=Py_ssize_t, size=Py_ssize_t, shift=int, byte=Py_ssize_t, number=int64_t)
cpdef tuple whole_reply(bytes data)

@cython.locals(
    index=Py_ssize_t, kind=int, src=bytes, source=bytes, walk=Entries, start=Py_ssize_t, at=Py_ssize_t,
    number=int64_t, unit=int64_t, least=int64_t, greatest=int64_t
)
cpdef dict own_gtid_ranges(object frames, c_array ends, object kinds, bint inside)

cdef class Entries(f.Cursor):
    cdef public Py_ssize_t stop, number, sub, journal_start, journal_stop, schema_start, schema_stop
    cdef public Py_ssize_t snapshot_start, snapshot_stop, frame_start
    cdef public Py_ssize_t own_gtid_start, own_gtid_stop
    cdef public Py_ssize_t table_start, table_stop, gtid_start, gtid_stop, store_start, store_stop, sql_start, sql_stop
    cdef public int64_t offset, server_id, time_ms, _offset
    cdef public int kind, event_type
    cdef public bint is_ddl, partial
    cdef public bytes _journal
    cdef bytearray _forms
    cdef public c_array rows

    @cython.locals(tag=uint64_t, start=Py_ssize_t, end=Py_ssize_t)
    cpdef bint next(self) except -1
    @cython.locals(count=Py_ssize_t)
    cpdef Py_ssize_t next_unusual(self) except -2
    cpdef int only(self, bytes src) except -1
    @cython.locals(src=bytes, which=int, head=r.HeadView)
    cdef int _entry(self, Py_ssize_t end) except -1
    @cython.locals(tag=uint64_t, value=int64_t)
    cdef int _fields(self, Py_ssize_t end) except -1
    @cython.locals(
        src=bytes, tag=uint64_t, kind=int, start=Py_ssize_t, stop=Py_ssize_t, value=uint64_t, after=Py_ssize_t
    )
    cdef int _header(self, Py_ssize_t end) except -1
    @cython.locals(
        src=bytes, tag=uint64_t, key_start=Py_ssize_t, key_stop=Py_ssize_t, value_start=Py_ssize_t,
        value_stop=Py_ssize_t, start=Py_ssize_t, stop=Py_ssize_t
    )
    cdef int _prop(self, Py_ssize_t end) except -1
    @cython.locals(
        after=Py_ssize_t, end=Py_ssize_t, src=bytes, rows=c_array, read=r.ChangeFields, tag=uint64_t, value=int64_t, start=Py_ssize_t,
        stop=Py_ssize_t
    )
    cpdef Py_ssize_t change(self) except -1
    cpdef tuple texts(self)
    cpdef str text(self, Py_ssize_t start, Py_ssize_t stop)
