/* C functions for reuse.pxd that Cython cannot express: finding memory without other references, and reusing it.

   If the list holds the only reference to an object, no other code can see the object, so its content may change while
   the caller holds the GIL. Without a GIL, reference counts are not exact, and no memory is reused. */

#ifndef CANAL_HA_KERNEL_REUSE_H
#define CANAL_HA_KERNEL_REUSE_H

#include <Python.h>
#include <string.h>

static inline int kernel_alone(PyObject *one)
{
#ifdef Py_GIL_DISABLED
    return 0;
#else
    return Py_REFCNT(one) == 1;
#endif
}

/* Return the size to allocate for `size` bytes: a power of two, so an object's size tells how much was allocated. */
static inline Py_ssize_t kernel_landing_size(Py_ssize_t size)
{
    Py_ssize_t room = 1;
    while (room < size)
        room <<= 1;
    return room;
}

/* Return a bytes object of undefined content. Objects of `smallest` to `largest` bytes are taken from `held`, or added
   to it; `held` keeps at most `count` objects. */
static PyObject *kernel_landing(PyObject *held, Py_ssize_t size, Py_ssize_t smallest, Py_ssize_t largest, Py_ssize_t count)
{
    PyObject *found = NULL;
    Py_ssize_t room = kernel_landing_size(size), index;
    if (size < smallest || size > largest)
        return PyBytes_FromStringAndSize(NULL, size);
    for (index = 0; index < PyList_GET_SIZE(held); index++) {
        found = PyList_GET_ITEM(held, index);
        if (kernel_alone(found) && kernel_landing_size(PyBytes_GET_SIZE(found)) == room) {
            Py_INCREF(found);
            break;
        }
    }
    if (index == PyList_GET_SIZE(held)) {
        if ((found = PyBytes_FromStringAndSize(NULL, room)) == NULL)
            return NULL;
        if (PyList_GET_SIZE(held) >= count && PyList_SetSlice(held, 0, 1, NULL) < 0) {
            Py_DECREF(found);
            return NULL;
        }
        if (PyList_Append(held, found) < 0) {
            Py_DECREF(found);
            return NULL;
        }
    }
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#endif
    ((PyBytesObject *)found)->ob_shash = -1; /* -1: unknown, because the content changes */
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
    Py_SET_SIZE((PyVarObject *)found, size);
    PyBytes_AS_STRING(found)[size] = 0;
    return found;
}

/* Return an empty bytearray with memory for about `size` bytes, taken from `held` or added to it. The bytearrays in
   `held` have at most `most` bytes in total. */
static PyObject *kernel_spare_array(PyObject *held, Py_ssize_t size, Py_ssize_t smallest, Py_ssize_t most)
{
    PyObject *found = NULL;
    Py_ssize_t total = 0, fit = PY_SSIZE_T_MAX, index;
    if (size < smallest)
        return PyByteArray_FromStringAndSize(NULL, 0);
    for (index = 0; index < PyList_GET_SIZE(held); index++) {
        PyObject *one = PyList_GET_ITEM(held, index);
        Py_ssize_t room = ((PyByteArrayObject *)one)->ob_alloc;
        total += room;
        if (room > size && room < fit && room <= 4 * size && kernel_alone(one)) {
            found = one;
            fit = room;
        }
    }
    if (found != NULL) {
        Py_INCREF(found);
        ((PyByteArrayObject *)found)->ob_start = ((PyByteArrayObject *)found)->ob_bytes;
        Py_SET_SIZE((PyVarObject *)found, 0);
        PyByteArray_AS_STRING(found)[0] = 0;
        return found;
    }
    size += size >> 3; /* the next rows may be a little larger */
    for (index = 0; total + size > most && index < PyList_GET_SIZE(held);) {
        PyObject *one = PyList_GET_ITEM(held, index);
        if (!kernel_alone(one)) {
            index++;
            continue;
        }
        total -= ((PyByteArrayObject *)one)->ob_alloc;
        if (PyList_SetSlice(held, index, index + 1, NULL) < 0)
            return NULL;
    }
    if ((found = PyByteArray_FromStringAndSize(NULL, size)) == NULL)
        return NULL;
    Py_SET_SIZE((PyVarObject *)found, 0);
    PyByteArray_AS_STRING(found)[0] = 0;
    if (total + size <= most && PyList_Append(held, found) < 0) {
        Py_DECREF(found);
        return NULL;
    }
    return found;
}

#endif
