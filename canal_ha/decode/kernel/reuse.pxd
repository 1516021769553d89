# The functions of reuse.py in C, with the same names and results. These reuse memory.

from cpython.buffer cimport PyBUF_WRITE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory

cdef extern from "reuse.h":
    bytes kernel_landing(list held, Py_ssize_t size, Py_ssize_t smallest, Py_ssize_t largest, Py_ssize_t count)
    bytearray kernel_spare_array(list held, Py_ssize_t size, Py_ssize_t smallest, Py_ssize_t most)

cdef inline bytes room(list held, Py_ssize_t size, Py_ssize_t smallest, Py_ssize_t largest, Py_ssize_t count):
    return kernel_landing(held, size, smallest, largest, count)

cdef inline object writable(bytes room):
    return PyMemoryView_FromMemory(PyBytes_AS_STRING(room), PyBytes_GET_SIZE(room), PyBUF_WRITE)

cdef inline bytes content(bytes room):
    return room

cdef inline bytearray spare(list held, Py_ssize_t size, Py_ssize_t smallest, Py_ssize_t most):
    return kernel_spare_array(held, size, smallest, most)
