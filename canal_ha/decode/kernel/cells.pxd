cimport canal_ha.decode.kernel.kinds as k
cimport canal_ha.decode.kernel.primitives as p
cimport cython

cdef class Cell:
    cdef public Py_ssize_t index, size, suffix_size, json_index, start, stop
    cdef public int kind, text, precision, decimals
    cdef public bint unsigned, skip
    cdef public bytes tag, fixed, wide_fixed, suffix, null, null_same, name
    cdef public list heads, wide_heads
    cdef public str codec
    cdef public Cell twin

cdef class TablePlan:
    cdef public bytes body, names, change
    cdef public list before, after
    cdef public Py_ssize_t width, head_size, json_columns
    cdef public bint drop

@cython.locals(text=bytearray, made=bytes)
cpdef bytes head(Cell cell, Py_ssize_t size, bint wide)
