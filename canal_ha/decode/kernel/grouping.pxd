cimport canal_ha.decode.kernel.kinds as k
cimport canal_ha.decode.kernel.primitives as p
cimport cython
from cpython.array cimport array as c_array
from libc.stdint cimport int64_t

cdef Py_ssize_t _ENTRIES_HELD

@cython.final
cdef class Grouping:
    cdef public bytearray out, kinds, executed, run_texts
    cdef public c_array ends, offsets, subs, timestamps, event_lengths, row_counts, run_starts, run_server_ids,\
        entry_ends, row_ends, run_text_ends
    cdef public object buffers
    cdef public Py_ssize_t transaction_size, visible, visible_bytes, empty_count
    cdef public int64_t empty_ms
    cdef public bint has_rows, cut

    @cython.locals(column=c_array)
    cdef int _renew(self, Py_ssize_t entries) except -1
    cpdef int room(self) except -1 nogil
    @cython.locals(entries=Py_ssize_t, runs=Py_ssize_t)
    cpdef int added(
        self, int kind, int64_t offset, int sub, int64_t timestamp_ms, int64_t event_length, int rows,
        int64_t server_id, int64_t entry_size
    ) except -1 nogil
    @cython.locals(start=Py_ssize_t)
    cdef bint _is_executed(self, Py_ssize_t run) noexcept nogil
    @cython.locals(first=Py_ssize_t)
    cpdef int flush(self) except -1 nogil
    cdef bint _shows_empty(self, int64_t timestamp) noexcept nogil
    @cython.locals(first=Py_ssize_t, runs=Py_ssize_t)
    cpdef int rewind(self) except -1 nogil
    @cython.locals(taken=Grouping, has_rows=bint, cut=bint)
    cpdef Grouping take(self)
    @cython.locals(size=Py_ssize_t, capacity=Py_ssize_t)
    cdef int _hand_over(self, Grouping taken) except -1
    cdef int _adopt(self, Grouping taken) except -1
