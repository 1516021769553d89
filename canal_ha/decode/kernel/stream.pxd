cimport canal_ha.decode.kernel.cells as c
cimport canal_ha.decode.kernel.grouping as g
cimport canal_ha.decode.kernel.gtid as gtid
cimport canal_ha.decode.kernel.kinds as k
cimport canal_ha.decode.kernel.primitives as p
cimport canal_ha.decode.kernel.reuse as reuse
cimport canal_ha.decode.kernel.rows as r
cimport canal_ha.decode.kernel.views as views
cimport cython
from libc.stdint cimport int64_t

cdef bytes _NO_TABLE
cdef int64_t _DUMMY_TABLE, _FULL_PACKET, _HALF, _PLANS_SEEN
cdef int _GROUP_COMMIT_ID, _XA, _START_ALTER, _ROLLBACK_ALTER
cdef Py_ssize_t _STATEMENT_KEPT
cdef Py_ssize_t _ALONE, _LANDED
cdef int _STATEMENT_ENDS, _GO_ON, _STARVED, _REFILL, _LARGE

@cython.final
cdef class EventStream:
    cdef public bint announced, packets, payload, compressed, prepared, joined, known_format, open, begun,\
        drop_savepoints, drop_statements, has_gtids, hold_xa, holding, wide, without_effect
    cdef public bytes src, chunk, landing, event_src, clock, journal_field, mark, partial_mark
    cdef public list outers
    cdef public bytearray pending, frame, store, text, drop, passed_executed, places
    cdef public Py_ssize_t pos, limit, chunk_pos, need, event_start, event_at, event_stop,\
        segment_bytes, landing_at, landing_size, landing_stop, landing_packets, landings
    cdef public int64_t position, base, offset, length, timestamp, server_id, flags
    cdef public int64_t passed_position, passed_timestamp, clock_timestamp, clock_server_id, doubts
    cdef public int sub, event_kind, checksum
    cdef public dict plans, older_plans
    cdef c.SeenPlan *plans_seen
    cdef public object gtids, pieces
    cdef gtid.Gtids known_gtids
    cdef public g.Grouping group
    cdef r.RowWriter writer

    cdef c.SeenPlan _plan(self, int64_t table_id) except NULL nogil
    @cython.locals(plan=c.TablePlan)
    cdef c.SeenPlan _find_plan(self, int64_t table_id) except NULL with gil
    cdef int take_gtids(self) except -1 nogil
    cpdef bint feed(self, bytes data) except -1
    cpdef object room(self)
    cpdef bint received(self, Py_ssize_t count) except -1
    cdef int _enter_chunk(self) except -1
    @cython.locals(pending=bytearray, stop=Py_ssize_t)
    cdef bint _join(self) except -1
    cdef int _starve(self, Py_ssize_t need) except -2
    cdef int _leave_chunk(self) except -1
    cdef int _begin_landing(self, Py_ssize_t size, Py_ssize_t first, Py_ssize_t packets) except -1
    @cython.locals(stop=Py_ssize_t, count=Py_ssize_t)
    cdef bint _land(self) except -1
    @cython.locals(part=Py_ssize_t)
    cdef int _begin_packet(self) except -1
    cdef bint _landed(self) except -1
    @cython.locals(src=bytes, code=int)
    cpdef int step(self) except -9
    cdef int _leave_payload(self) except -1
    @cython.locals(code=int)
    cdef int _work(self, bytes src) except -9 nogil
    @cython.locals(pos=Py_ssize_t, left=Py_ssize_t, size=Py_ssize_t)
    cdef int _next(self, bytes src) except -9 nogil
    @cython.locals(pos=Py_ssize_t, size=Py_ssize_t)
    cdef int _begin_wide(self, bytes src) except -9
    @cython.locals(
        timestamp=int64_t, kind=int, server_id=int64_t, length=int64_t, log_pos=int64_t, flags=int64_t,
        body=Py_ssize_t, placed=bint, code=int
    )
    cdef int _event(self, bytes src, Py_ssize_t start, Py_ssize_t stop) except -9 nogil
    @cython.locals(end=int64_t)
    cdef int _locate(self, int64_t log_pos, int64_t length) except -1 nogil
    cpdef int pass_event(self) except -1 nogil
    cpdef int close(self) except -1 nogil
    @cython.locals(table_id=int64_t, plan=c.SeenPlan)
    cdef int _table_map(self, bytes src, Py_ssize_t body, Py_ssize_t stop) except -9 nogil
    @cython.locals(table_id=int64_t, pos=Py_ssize_t, extra=Py_ssize_t, plan=c.SeenPlan, change=int)
    cpdef int rows_event(self, int kind, bytes src, Py_ssize_t body, Py_ssize_t stop) except -1 nogil
    @cython.locals(
        mark=Py_ssize_t, size=Py_ssize_t, count=Py_ssize_t, store=Py_ssize_t, entry=Py_ssize_t, mark_field=p.Piece
    )
    cdef int _put_rows(
        self, c.SeenPlan plan, int change, bint partial, bytes src, Py_ssize_t pos, Py_ssize_t stop
    ) except -1 nogil
    cdef int _xid(self, bytes src, Py_ssize_t body, Py_ssize_t stop) except -1 nogil
    @cython.locals(at=Py_ssize_t)
    cdef int _query(self, bytes src, Py_ssize_t body, Py_ssize_t stop) except -9 nogil
    cpdef int begin(self, object store) except -1
    cdef int _begin(self) except -1 nogil
    @cython.locals(flags=int, at=Py_ssize_t)
    cdef bint _has_no_effect(self, bytes src, Py_ssize_t body, Py_ssize_t stop) except -1 nogil
    cdef int _gtid(self, int kind, bytes src, Py_ssize_t body, Py_ssize_t stop) except -1 nogil
    cdef int _mariadb_gtid(self, bytes src, Py_ssize_t body, Py_ssize_t stop) except -1 nogil
    cdef int _forget_statement(self) except -1 with gil
    cdef int _annotate(self, bytes src, Py_ssize_t body, Py_ssize_t stop) except -1 nogil
    cpdef int put_entry(
        self, int kind, int entry_type, bytes names, bytes event_type, object store, bint with_gtid, bint shows
    ) except -1
    @cython.locals(size=Py_ssize_t)
    cdef int _put_store(
        self, int kind, int entry_type, p.Piece names, int event_type, bint with_gtid, bint shows
    ) except -1 nogil
    cdef int _set_clock(self) except -1 with gil
    cdef Py_ssize_t _put_frame(
        self, bytearray out, int entry_type, p.Piece names, int event_type, p.Piece mark, Py_ssize_t rows,
        bint with_gtid, Py_ssize_t store
    ) except -1 nogil
    cdef int _added(self, int kind, int rows, Py_ssize_t size) except -1 nogil
