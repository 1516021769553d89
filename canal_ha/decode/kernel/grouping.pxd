cimport canal_ha.decode.kernel.kinds as k
cimport canal_ha.decode.kernel.primitives as p
cimport cython
from cpython.array cimport array as c_array
from libc.stdint cimport int64_t

cdef Py_ssize_t _ENTRIES_HELD

@cython.final
cdef class Grouping:
    cdef public bytearray out, kinds, executed, run_texts, mark_name, mark_names
    cdef public c_array ends, offsets, subs, timestamps, event_lengths, row_counts, run_starts, run_server_ids,\
        entry_ends, row_ends, run_text_ends, mark_ends, mark_counts
    cdef public object buffers
    cdef public Py_ssize_t transaction_size, visible, visible_bytes, settled, settled_bytes, empty_count
    cdef public int64_t empty_ms, given
    cdef public bint has_rows, cut, undoable, shown, whole

    @cython.locals(column=c_array)
    cdef int _renew(self, Py_ssize_t entries) except -1
    cpdef int room(self) except -1 nogil
    cdef bint _too_large(self, Py_ssize_t first, Py_ssize_t first_byte) noexcept nogil
    cpdef int begin(self) except -1 nogil
    cpdef int end(self) except -1 nogil
    cdef int _show(self) except -1 nogil
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
    cpdef int rewind(self) except -1 nogil
    @cython.locals(marks=Py_ssize_t, first=Py_ssize_t, count=int64_t)
    cpdef int mark(self, bytes src, Py_ssize_t start, Py_ssize_t stop) except -1 nogil
    cdef int _cut_marks(self, Py_ssize_t count) except -1 nogil
    @cython.locals(count=int64_t)
    cpdef bint undo_to(self, Py_ssize_t mark) except -1
    cpdef bint undo_all(self) except -1
    @cython.locals(size=Py_ssize_t, runs=Py_ssize_t)
    cdef int _drop_from(self, Py_ssize_t first) except -1 nogil
    @cython.locals(taken=Grouping, settled=Py_ssize_t, settled_bytes=Py_ssize_t)
    cpdef Grouping take(self)
    @cython.locals(size=Py_ssize_t, capacity=Py_ssize_t)
    cdef int _hand_over(self, Grouping taken) except -1
    cdef int _adopt(self, Grouping taken) except -1
