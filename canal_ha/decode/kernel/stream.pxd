cimport canal_ha.decode.kernel.cells as c
cimport canal_ha.decode.kernel.grouping as g
cimport canal_ha.decode.kernel.kinds as k
cimport canal_ha.decode.kernel.primitives as p
cimport canal_ha.decode.kernel.rows as r
cimport cython
from libc.stdint cimport int64_t

cdef tuple _EVENT_TYPES, _CHANGE_TYPES, _ENTRY_TYPES, _ROWS_COUNT
cdef int64_t _DUMMY_TABLE, _FULL_PACKET, _HALF
cdef Py_ssize_t _ROWS_KNOWN

cdef class Stream:
    cdef public bint packets, payload, joined, known_format, open, begun, drop_statements
    cdef public bytes src, chunk, outer, event_src, clock, journal_field
    cdef public bytearray pending, frame, store
    cdef public Py_ssize_t pos, limit, chunk_pos, need, outer_pos, outer_limit, event_start, event_at, event_stop, segment_bytes
    cdef public int64_t position, base, offset, length, timestamp, server_id, flags
    cdef public int64_t passed_position, passed_timestamp, clock_timestamp, clock_server_id
    cdef public int sub, event_kind, checksum
    cdef public dict plans
    cdef public c.TablePlan plan
    cdef public int64_t plan_id
    cdef public list drop
    cdef public object gtids
    cdef public str passed_gtid
    cdef public g.Grouping group
    cdef public r.RowWriter writer

    cpdef bint feed(self, bytes data) except -1
    cdef int _enter_chunk(self) except -1
    @cython.locals(pending=bytearray, stop=Py_ssize_t)
    cdef bint _join(self) except -1
    cdef int _starve(self, Py_ssize_t need) except -2
    @cython.locals(code=int)
    cpdef int step(self) except -2
    @cython.locals(src=bytes, pos=Py_ssize_t, left=Py_ssize_t, size=Py_ssize_t)
    cdef int _next(self) except -2
    @cython.locals(
        src=bytes, pos=Py_ssize_t, size=Py_ssize_t, packets=Py_ssize_t, whole=bytearray, index=Py_ssize_t,
        part=Py_ssize_t
    )
    cdef int _large(self, Py_ssize_t left) except -2
    @cython.locals(
        timestamp=int64_t, kind=int, server_id=int64_t, length=int64_t, log_pos=int64_t, flags=int64_t,
        body=Py_ssize_t, placed=bint, code=int
    )
    cdef int _event(self, bytes src, Py_ssize_t start, Py_ssize_t stop) except -2
    @cython.locals(end=int64_t)
    cdef int _locate(self, int64_t log_pos, int64_t length) except -1
    cpdef int pass_event(self) except -1
    cpdef int close(self) except -1
    cdef c.TablePlan _plan(self, int64_t table_id)
    @cython.locals(plan=c.TablePlan)
    cdef int _table_map(self, bytes src, Py_ssize_t body, Py_ssize_t stop) except -2
    @cython.locals(table_id=int64_t, pos=Py_ssize_t, extra=Py_ssize_t, plan=c.TablePlan, change=int)
    cpdef int rows_event(self, int kind, bytes src, Py_ssize_t body, Py_ssize_t stop) except -1
    @cython.locals(
        group=g.Grouping, out=bytearray, mark=Py_ssize_t, size=Py_ssize_t, count=Py_ssize_t, frame=bytearray,
        store=Py_ssize_t, entry=Py_ssize_t
    )
    cdef int _put_rows(
        self, c.TablePlan plan, int change, bint partial, bytes src, Py_ssize_t pos, Py_ssize_t stop
    ) except -1
    @cython.locals(store=bytearray)
    cdef int _xid(self, bytes src, Py_ssize_t body, Py_ssize_t stop) except -1
    @cython.locals(at=Py_ssize_t, store=bytearray)
    cdef int _query(self, bytes src, Py_ssize_t body, Py_ssize_t stop) except -2
    cpdef int begin(self, object store) except -1
    cdef int _gtid(self, int kind, bytes src, Py_ssize_t body, Py_ssize_t stop) except -1
    cdef int _executed(self, object gtids, bytes src, Py_ssize_t body, Py_ssize_t stop) except -1
    cdef int _mariadb_gtid(self, bytes src, Py_ssize_t body, Py_ssize_t stop) except -1
    @cython.locals(text=bytearray, store=bytearray)
    cdef int _annotate(self, bytes src, Py_ssize_t body, Py_ssize_t stop) except -1
    @cython.locals(group=g.Grouping, size=Py_ssize_t)
    cpdef int put_entry(
        self, int kind, int entry_type, bytes names, bytes event_type, object store, bint with_gtid, bint shows
    ) except -1
    cdef bytes _clock(self)
    @cython.locals(clock=bytes, count=bytes, props=bytes, field=bytes)
    cdef Py_ssize_t _put_frame(
        self, bytearray out, int entry_type, bytes names, bytes event_type, Py_ssize_t rows, bint with_gtid,
        Py_ssize_t store
    ) except -1
    cdef int _added(self, int kind, int rows, Py_ssize_t size) except -1
