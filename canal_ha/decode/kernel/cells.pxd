cimport canal_ha.decode.kernel.primitives as p
cimport cython
from libc.stdint cimport int64_t

cdef struct View:  # view of a Cell
    p.Piece fixed, wide_fixed, suffix, null, null_same
    Py_ssize_t index, size, suffix_size, json_index
    Py_ssize_t start, stop, column_start, column_stop, source_start, source_size
    int tag, kind, text, precision, decimals
    bint unsigned, skip
    View *twin
    void *cell

ctypedef View *Seen
ctypedef View **Image

cdef struct PlanView:  # view of a TablePlan
    p.Piece body, names, change
    Image before, after
    Py_ssize_t width, head_size, json_columns
    int64_t table_id, doubts
    bint drop

ctypedef PlanView *SeenPlan

@cython.final
cdef class Cell:
    cdef public Py_ssize_t index, size, suffix_size, json_index, start, stop, column_start, column_stop, source_start,\
        source_size
    cdef public int tag, kind, text, precision, decimals
    cdef public bint unsigned, skip
    cdef public bytes fixed, wide_fixed, suffix, null, null_same, name
    cdef public str codec
    cdef public Cell twin
    cdef View view
    cdef tuple kept  # the objects that the view points into
    cdef public Cell clear
    cdef public object protect

@cython.final
cdef class TablePlan:
    cdef public bytes body, names, change
    cdef public tuple before, after
    cdef public Py_ssize_t width, head_size, json_columns
    cdef public int64_t table_id, doubts
    cdef public bint drop
    cdef PlanView view
    cdef tuple kept
    cdef bytearray cells
