# The functions of views.py in C.

cimport canal_ha.decode.kernel.cells as c
cimport canal_ha.decode.kernel.primitives as p

cdef extern from "Python.h":
    char *PyByteArray_AS_STRING(bytearray data) noexcept nogil

cdef extern from *:
    """
    static long long kernel_nothing[64]; /* more than a PlanView has */
    """
    long long *kernel_nothing

cdef inline int _look(c.Cell cell) except -1:
    cdef c.View *view = &cell.view
    cell.kept = (cell.fixed, cell.wide_fixed, cell.suffix, cell.null, cell.null_same, cell.twin)
    view.fixed = p.piece(cell.fixed)
    view.wide_fixed = p.piece(cell.wide_fixed)
    view.suffix = p.piece(cell.suffix)
    view.null = p.piece(cell.null)
    view.null_same = p.piece(cell.null_same)
    view.index = cell.index
    view.size = cell.size
    view.suffix_size = cell.suffix_size
    view.json_index = cell.json_index
    view.tag = cell.tag
    view.kind = cell.kind
    view.text = cell.text
    view.precision = cell.precision
    view.decimals = cell.decimals
    view.unsigned = cell.unsigned
    view.skip = cell.skip
    view.twin = NULL if cell.twin is None else &cell.twin.view
    view.cell = <void *>cell
    if cell.clear is not None:
        _look(cell.clear)
    return 0

cdef inline c.PlanView *view(c.TablePlan plan) except NULL:
    cdef c.PlanView *seen = &plan.view
    cdef c.Cell cell
    cdef Py_ssize_t index
    plan.kept = (plan.body, plan.names, plan.change, plan.before, plan.after)
    plan.cells = bytearray(2 * plan.width * sizeof(c.View *) + 1)
    seen.before = <c.View **>PyByteArray_AS_STRING(plan.cells)
    seen.after = seen.before + plan.width
    for index in range(plan.width):
        cell = plan.before[index]
        _look(cell)
        seen.before[index] = &cell.view
        cell = plan.after[index]
        _look(cell)
        seen.after[index] = &cell.view
    seen.body = p.piece(plan.body)
    seen.names = p.piece(plan.names)
    seen.change = p.piece(plan.change)
    seen.width = plan.width
    seen.head_size = plan.head_size
    seen.json_columns = plan.json_columns
    seen.table_id = plan.table_id
    seen.doubts = plan.doubts
    seen.drop = plan.drop
    return seen

cdef inline c.PlanView *nothing() noexcept nogil:
    cdef c.PlanView *none = <c.PlanView *>kernel_nothing
    none.table_id = -1
    return none

cdef inline c.SeenPlan *places(bytearray room, Py_ssize_t count) except NULL:
    cdef c.SeenPlan *made
    cdef Py_ssize_t index
    p.reserve(room, count * sizeof(c.SeenPlan))
    made = <c.SeenPlan *>PyByteArray_AS_STRING(room)
    for index in range(count):
        made[index] = nothing()
    return made

cdef inline c.Cell cell(c.View *view):
    return <c.Cell>view.cell

cdef inline c.View *clear(c.Cell cell):
    return &cell.clear.view

cdef inline c.View **present(
    c.View **cells, bytes src, Py_ssize_t at, Py_ssize_t width, bytearray room
) except NULL nogil:
    cdef c.View **chosen
    cdef Py_ssize_t index, count = 0
    p.truncate(room, 0)
    p.reserve(room, (width + 1) * sizeof(c.View *))
    chosen = <c.View **>PyByteArray_AS_STRING(room)
    for index in range(width):
        if p.is_set(src, at, index):
            chosen[count] = cells[index]
            count += 1
    return chosen
