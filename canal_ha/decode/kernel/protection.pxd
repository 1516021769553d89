cimport canal_ha.decode.kernel.cells as c
cimport canal_ha.decode.kernel.primitives as p
cimport canal_ha.decode.kernel.rows as rows
cimport canal_ha.decode.kernel.views as views
cimport cython

cdef Py_ssize_t _TEXT_KEPT

@cython.locals(clear=c.Seen, size=Py_ssize_t, end=Py_ssize_t)
cpdef bytes protected(rows.RowWriter writer, c.Cell cell, bytes src)
