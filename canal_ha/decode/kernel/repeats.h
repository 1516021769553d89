/* C functions for repeats.pxd that Cython cannot express: reading entries and rows that have the usual form.

   They read what writers of entries write: one-byte tags, short lengths, the bytes of earlier rows around the values.
   They decline everything else, so they never raise an error about the bytes, and they never read outside the area
   that the caller gives. Nothing was changed when they decline. */

#ifndef CANAL_HA_KERNEL_REPEATS_H
#define CANAL_HA_KERNEL_REPEATS_H

#include "primitives.h"
#include "texts.h"

/* ---- pieces */

/* Return 1 if the bytes are equal; without a function call, because most pieces are short. */
static inline int kernel_equal(const unsigned char *one, const unsigned char *other, Py_ssize_t size)
{
    uint64_t a, b, c, d;
    uint32_t e, f, g, h;
#if defined(__SSE2__)
    if (size >= 16) {
        const unsigned char *end = one + size - 16;
        __m128i all = _mm_cmpeq_epi8(
            _mm_loadu_si128((const __m128i *)end), _mm_loadu_si128((const __m128i *)(other + size - 16)));
        for (; one < end; one += 16, other += 16)
            all = _mm_and_si128(
                all, _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)one), _mm_loadu_si128((const __m128i *)other)));
        return _mm_movemask_epi8(all) == 0xFFFF;
    }
#endif
    if (size >= 8) {
        const unsigned char *last = one + size - 8;
        memcpy(&a, last, 8), memcpy(&b, other + size - 8, 8);
        memcpy(&c, one, 8), memcpy(&d, other, 8);
        a = (a ^ b) | (c ^ d);
        if (size > 16)
            for (one += 8, other += 8; one < last; one += 8, other += 8) {
                memcpy(&c, one, 8), memcpy(&d, other, 8);
                a |= c ^ d;
            }
        return a == 0;
    }
    if (size >= 4) {
        memcpy(&e, one, 4), memcpy(&f, other, 4);
        memcpy(&g, one + size - 4, 4), memcpy(&h, other + size - 4, 4);
        return ((e ^ f) | (g ^ h)) == 0;
    }
    for (; size; one++, other++, size--)
        if (*one != *other)
            return 0;
    return 1;
}

/* Return where the bytes begin whose length of at most three bytes stands at `at`, and their length; NULL if the length
   or the bytes do not end before `stop`. */
static inline const unsigned char *kernel_stretch(
    const unsigned char *at, const unsigned char *stop, Py_ssize_t *size)
{
    Py_ssize_t found;
    if (stop - at < 1)
        return NULL;
    found = *at++;
    if (found > 127) {
        if (stop - at < 1)
            return NULL;
        found = (found & 127) | (Py_ssize_t)(*at & 127) << 7;
        if (*at++ > 127) {
            if (stop - at < 1 || *at > 127)
                return NULL;
            found |= (Py_ssize_t)*at++ << 14;
        }
    }
    *size = found;
    return found <= stop - at ? at : NULL;
}

static inline int kernel_short_ascii(const unsigned char *at, Py_ssize_t size)
{
    const uint64_t high = 0x8080808080808080ULL;
    uint64_t word, seen = 0;
    if (size >= 8) {
        const unsigned char *last = at + size - 8;
        for (; at < last; at += 8) {
            memcpy(&word, at, 8);
            seen |= word;
        }
        memcpy(&word, last, 8);
        return !((seen | word) & high);
    }
    for (; size; at++, size--)
        seen |= *at;
    return !(seen & 0x80);
}

/* ---- entries */

/* An Entry's fields; texts as positions. known: 0 if the entry was declined; ascii: whether its texts are ASCII. */
typedef struct {
    int known, ascii, kind, partial;
    int64_t offset, server_id, time_ms;
    Py_ssize_t journal_start, journal_stop, schema_start, schema_stop, table_start, table_stop, gtid_start, gtid_stop;
    Py_ssize_t snapshot_start, snapshot_stop, own_gtid_start, own_gtid_stop, store_start, store_stop;
} kernel_head;

/* An earlier entry: one header after the other differs only in a few numbers.
   size: of what the entries have in common, up to the tag of the content; 0 for no entry.
   cuts: where `count` numbers begin and end that may differ; positions are relative to the entry's start.
   bytes, mask: what the entries have in common, and which bits of it count: of those numbers, which bytes go on.
   head: of that entry, relative to its start; now: of the entry that was read last. */
#define KERNEL_FORM_BYTES 256
#define KERNEL_FORM_CUTS 3

typedef struct {
    Py_ssize_t size;
    int count;
    struct {
        int tag;
        Py_ssize_t start, stop;
    } cuts[KERNEL_FORM_CUTS];
    kernel_head head, now;
    unsigned char bytes[KERNEL_FORM_BYTES], mask[KERNEL_FORM_BYTES];
} kernel_form;

/* A name of a property. */
typedef struct {
    const unsigned char *data;
    Py_ssize_t size;
} kernel_name;

/* Read a Pair; return 0 to decline. names: of the properties snapshot, own GTID, partial. */
static inline int kernel_prop(kernel_head *head, const unsigned char *base, const unsigned char *at,
                              const unsigned char *stop, const kernel_name *names)
{
    const unsigned char *key, *value;
    Py_ssize_t key_size, size;
    if (at == stop || *at != 0x0A || !(key = kernel_stretch(at + 1, stop, &key_size)))
        return 0;
    at = key + key_size;
    if (at == stop || *at != 0x12 || !(value = kernel_stretch(at + 1, stop, &size)) || value + size != stop)
        return 0;
    if (key_size == names[0].size && kernel_equal(key, names[0].data, key_size)) {
        if (!kernel_short_ascii(value, size))
            return 0;
        head->snapshot_start = value - base;
        head->snapshot_stop = head->snapshot_start + size;
    } else if (key_size == names[1].size && kernel_equal(key, names[1].data, key_size)) {
        if (!kernel_short_ascii(value, size))
            return 0;
        head->own_gtid_start = value - base;
        head->own_gtid_stop = head->own_gtid_start + size;
    } else if (key_size == names[2].size && kernel_equal(key, names[2].data, key_size)) {
        head->partial = 1;
    }
    return 1;
}

static inline void kernel_set(kernel_head *head, unsigned tag, uint64_t value)
{
    if (tag == 0x18)
        head->offset = (int64_t)value;
    else if (tag == 0x20)
        head->server_id = (int64_t)value;
    else if (tag == 0x30)
        head->time_ms = (int64_t)value;
}

/* Read a Header; return 0 to decline. form: gets the places of its numbers. */
static inline int kernel_header(kernel_head *head, const unsigned char *base, const unsigned char *at,
                                const unsigned char *stop, const kernel_name *names, kernel_form *form)
{
    while (at < stop) {
        unsigned tag = *at++;
        if (tag < 8 || tag > 127)
            return 0;
        if ((tag & 7) == 2) {
            Py_ssize_t size, start;
            if (!(at = kernel_stretch(at, stop, &size)))
                return 0;
            start = at - base;
            switch (tag) {
            case 0x12:
                head->journal_start = start, head->journal_stop = start + size;
                break;
            case 0x42:
                head->schema_start = start, head->schema_stop = start + size;
                break;
            case 0x4A:
                head->table_start = start, head->table_stop = start + size;
                break;
            case 0x6A:
                head->gtid_start = start, head->gtid_stop = start + size;
                break;
            case 0x62:
                if (!kernel_prop(head, base, at, at + size, names))
                    return 0;
                break;
            }
            at += size;
        } else if ((tag & 7) == 0) {
            const unsigned char *number = at;
            uint64_t value = 0;
            int shift = 0;
            do {
                if (at == stop || shift > 56)
                    return 0;
                value |= (uint64_t)(*at & 127) << shift;
                shift += 7;
            } while (*at++ > 127);
            kernel_set(head, tag, value);
            if (tag == 0x18 || tag == 0x30 || tag == 0x50) {
                if (form->count < KERNEL_FORM_CUTS) {
                    form->cuts[form->count].tag = (int)tag;
                    form->cuts[form->count].start = number - base;
                    form->cuts[form->count].stop = at - base;
                }
                form->count++;
            }
        } else {
            return 0;
        }
    }
    return 1;
}

static inline void kernel_shift_text(
    Py_ssize_t *start, Py_ssize_t *stop, Py_ssize_t from_start, Py_ssize_t from_stop, Py_ssize_t by)
{
    if (from_stop)
        *start = from_start + by, *stop = from_stop + by;
}

/* Set the positions of the texts that are there, `by` bytes behind those of `from`. */
static inline void kernel_shift(kernel_head *head, const kernel_head *from, Py_ssize_t by)
{
    kernel_shift_text(&head->journal_start, &head->journal_stop, from->journal_start, from->journal_stop, by);
    kernel_shift_text(&head->schema_start, &head->schema_stop, from->schema_start, from->schema_stop, by);
    kernel_shift_text(&head->table_start, &head->table_stop, from->table_start, from->table_stop, by);
    kernel_shift_text(&head->gtid_start, &head->gtid_stop, from->gtid_start, from->gtid_stop, by);
    kernel_shift_text(&head->snapshot_start, &head->snapshot_stop, from->snapshot_start, from->snapshot_stop, by);
    kernel_shift_text(&head->own_gtid_start, &head->own_gtid_stop, from->own_gtid_start, from->own_gtid_stop, by);
}

/* Return the varint of `size` bytes. room: 8 or more bytes can be read. */
static inline uint64_t kernel_varint(const unsigned char *at, Py_ssize_t size, int room)
{
    uint64_t value = 0;
    if (KERNEL_LITTLE_ENDIAN && room && size < 8) {
        memcpy(&value, at, 8);
        value &= (((uint64_t)1 << 8 * size) - 1) & 0x7F7F7F7F7F7F7F7FULL;
        value = (value & 0x007F007F007F007FULL) | (value & 0x7F007F007F007F00ULL) >> 1;
        value = (value & 0x00003FFF00003FFFULL) | (value & 0x3FFF00003FFF0000ULL) >> 2;
        return (value & 0x0FFFFFFFULL) | (value & 0x0FFFFFFF00000000ULL) >> 4;
    }
    while (size)
        value = value << 7 | (at[--size] & 127);
    return value;
}

/* Return whether the bits of a mask are equal. size: at least 8. */
static inline int kernel_equal_bits(
    const unsigned char *one, const unsigned char *other, const unsigned char *mask, Py_ssize_t size)
{
    uint64_t a, b, bits, seen = 0;
    Py_ssize_t at;
    for (at = 0; at < size; at += 8) {
        if (at > size - 8)
            at = size - 8;
        memcpy(&a, one + at, 8), memcpy(&b, other + at, 8), memcpy(&bits, mask + at, 8);
        seen |= (a ^ b) & bits;
    }
    return seen == 0;
}

/* Read an Entry that differs from an earlier one in numbers only; return 0 to decline. */
static inline int kernel_entry_again(kernel_form *form, const unsigned char *base, Py_ssize_t start, Py_ssize_t stop)
{
    const unsigned char *entry = base + start, *content;
    Py_ssize_t size;
    int index;
    if (!form->size || stop - start <= form->size || !kernel_equal_bits(entry, form->bytes, form->mask, form->size))
        return 0;
    if (!(content = kernel_stretch(entry + form->size, base + stop, &size)) || content + size != base + stop)
        return 0;
    for (index = 0; index < form->count; index++) {
        Py_ssize_t at = form->cuts[index].start;
        if (form->cuts[index].tag != 0x50)
            kernel_set(&form->now, (unsigned)form->cuts[index].tag,
                       kernel_varint(entry + at, form->cuts[index].stop - at, at + 8 <= form->size));
    }
    kernel_shift(&form->now, &form->head, start);
    form->now.store_start = content - base;
    form->now.store_stop = stop;
    return 1;
}

/* Remember an Entry, whose fields are header, type and content. */
static inline void kernel_keep(
    kernel_form *form, const unsigned char *base, Py_ssize_t start, const unsigned char *content)
{
    Py_ssize_t size = content - (base + start), at;
    int index;
    if (!form->now.ascii || size < 8 || size > KERNEL_FORM_BYTES || form->count > KERNEL_FORM_CUTS)
        return;
    memcpy(form->bytes, base + start, size);
    memset(form->mask, 0xFF, size);
    for (index = 0; index < form->count; index++) {
        form->cuts[index].start -= start, form->cuts[index].stop -= start;
        for (at = form->cuts[index].start; at < form->cuts[index].stop; at++)
            form->mask[at] = 0x80;
    }
    form->head = form->now;
    kernel_shift(&form->head, &form->now, -start);
    form->size = size;
}

/* Read the Entry base[start:stop].
   kind: its entryType if it names none; kinds: the largest known one.
   form: of an earlier entry that may be similar; gets that of this one, which has the result until the next call. */
static inline const kernel_head *kernel_entry(const unsigned char *base, Py_ssize_t start, Py_ssize_t stop, int kind,
                                              int kinds, const kernel_name *names, kernel_form *form)
{
    const unsigned char *at = base + start, *end = base + stop, *content = NULL;
    unsigned order = 0; /* the tags of the entry's fields */
    kernel_head *head = &form->now;
    if (kernel_entry_again(form, base, start, stop))
        return head;
    form->size = 0;
    form->count = 0;
    memset(head, 0, sizeof *head);
    head->kind = kind;
    while (at < end) {
        unsigned tag = *at++;
        order = order << 8 | tag;
        if (tag == 0x10) {
            if (at == end || *at > 127)
                return head;
            if (*at > 0 && *at <= kinds)
                head->kind = *at;
            at++;
        } else if (tag == 0x0A || tag == 0x1A) {
            Py_ssize_t size;
            content = at;
            if (!(at = kernel_stretch(at, end, &size)))
                return head;
            if (tag == 0x1A) {
                head->store_start = at - base;
                head->store_stop = head->store_start + size;
            } else if (!kernel_header(head, base, at, at + size, names, form)) {
                return head;
            }
            at += size;
        } else {
            return head;
        }
    }
    head->ascii = kernel_short_ascii(base + head->journal_start, head->journal_stop - head->journal_start) &&
                  kernel_short_ascii(base + head->schema_start, head->schema_stop - head->schema_start) &&
                  kernel_short_ascii(base + head->table_start, head->table_stop - head->table_start) &&
                  kernel_short_ascii(base + head->gtid_start, head->gtid_stop - head->gtid_start);
    head->known = 1;
    if (order == 0x0A101A)
        kernel_keep(form, base, start, content);
    return head;
}

/* ---- rows */

#define KERNEL_AHEAD 2048 /* bytes; the memory needs about as long as some rows */

/* Ask for the memory that rows of this size need next. The search for the rows' ends skips most of their bytes, which
   the processor does not expect. */
static inline void kernel_fetch(const unsigned char *at, Py_ssize_t size, const unsigned char *stop)
{
#if defined(__GNUC__)
    const unsigned char *end;
    at += KERNEL_AHEAD;
    end = size < stop - at ? at + size : stop;
    for (; at < end; at += 64)
        __builtin_prefetch(at);
#endif
}

/* The bytes around a value: see layouts.Variant. */
typedef struct {
    const unsigned char *head, *tail;
    Py_ssize_t head_size, tail_size;
    int null;
} kernel_variant;

/* A column of a row image.
   format: how its values are stored; 0: they are left out.
   slot: bytes of a value in `data`; 0 if sizes differ.
   twin: the part whose value must be the same, -1 for none.
   data, offsets, validity, count, nulls: of its Target. */
typedef struct {
    const kernel_variant *variants;
    int known, last, tag, twin, format, width, precision, scale;
    Py_ssize_t slot;
    PyObject *data, *offsets, *validity;
    Py_ssize_t *count, *nulls;
} kernel_part;

/* Where the value of a part is, from the start of its row. */
typedef struct {
    Py_ssize_t start, stop;
    int null;
} kernel_place;

/* What rows have in common whose values have equal sizes: where the values are, and the bytes between them.
   size: of such a row; 0 if none is known. gaps: the bytes before each value, and those behind the last one. */
typedef struct {
    Py_ssize_t size;
    kernel_place *places;
    unsigned char *gaps;
} kernel_outline;

#define KERNEL_OUTLINES 4 /* by the last bits of the row's size; a power of two */
#define KERNEL_PATIENCE 8 /* outlines that may be remembered before a row has one of them */
#define KERNEL_GAP_BYTES 4096 /* of an outline that is remembered */
#define KERNEL_RUN 32 /* rows that are put column by column; their bytes fit into the first cache */
#define KERNEL_ALONE 256 /* rows that are put one by one after a value was declined */

/* Rows of one shape.
   places, row: of the current row. own: room for the places of a row without an outline.
   gap_bytes: room for the gaps of an outline; 0: outlines are not remembered.
   twins: whether a part has one. patience, alone: see KERNEL_PATIENCE, KERNEL_ALONE. */
typedef struct {
    kernel_part *parts;
    Py_ssize_t width, gap_bytes;
    kernel_outline outlines[KERNEL_OUTLINES];
    kernel_place *own;
    const kernel_place *places;
    const unsigned char *row;
    int twins, patience, alone;
} kernel_rows;

/* Return the bytes of a kernel_rows with all that follows it in memory. gaps: the most bytes between values. */
static inline Py_ssize_t kernel_rows_size(Py_ssize_t width, Py_ssize_t variants, Py_ssize_t gaps)
{
    return sizeof(kernel_rows) + width * sizeof(kernel_part) + variants * sizeof(kernel_variant) +
           (KERNEL_OUTLINES + 1) * width * sizeof(kernel_place) + (gaps > KERNEL_GAP_BYTES ? 0 : KERNEL_OUTLINES * gaps);
}

/* Set the parts of a kernel_rows, in zeroed memory of the above size; return the room for variants. */
static inline kernel_variant *kernel_rows_begin(kernel_rows *rows, Py_ssize_t width, Py_ssize_t variants, Py_ssize_t gaps)
{
    kernel_variant *known;
    unsigned char *bytes;
    int index;
    rows->width = width;
    rows->gap_bytes = gaps > KERNEL_GAP_BYTES ? 0 : gaps;
    rows->patience = KERNEL_PATIENCE;
    rows->parts = (kernel_part *)(rows + 1);
    known = (kernel_variant *)(rows->parts + width);
    rows->own = (kernel_place *)(known + variants);
    bytes = (unsigned char *)(rows->own + (KERNEL_OUTLINES + 1) * width);
    for (index = 0; index < KERNEL_OUTLINES; index++) {
        rows->outlines[index].places = rows->own + (index + 1) * width;
        rows->outlines[index].gaps = bytes + index * rows->gap_bytes;
    }
    return known;
}

/* Find the value of the Column row[start:stop]; return 0 if it is not of this variant. */
static inline int kernel_is_variant(
    kernel_place *place, const kernel_variant *variant, const unsigned char *row, Py_ssize_t start, Py_ssize_t stop)
{
    const unsigned char *at = row + start, *end = row + stop;
    Py_ssize_t size = stop - start - variant->head_size, found;
    if (variant->null) {
        if (size || !kernel_equal(at, variant->head, variant->head_size))
            return 0;
        place->start = place->stop = stop;
        place->null = 1;
        return 1;
    }
    size -= variant->tail_size;
    if (size < 1 || !kernel_equal(at, variant->head, variant->head_size))
        return 0;
    end -= variant->tail_size;
    if (!(at = kernel_stretch(at + variant->head_size, end, &found)) || found != end - at)
        return 0;
    if (!kernel_equal(end, variant->tail, variant->tail_size))
        return 0;
    place->start = at - row;
    place->stop = end - row;
    place->null = 0;
    return 1;
}

/* Return whether the values of each part and its twin are equal. */
static inline int kernel_twins(const kernel_rows *rows, const kernel_place *places, const unsigned char *row)
{
    Py_ssize_t index;
    for (index = 0; rows->twins && index < rows->width; index++) {
        const kernel_place *one = places + index, *other;
        Py_ssize_t size = one->stop - one->start;
        if (rows->parts[index].twin < 0)
            continue;
        other = places + rows->parts[index].twin;
        if (other->stop - other->start != size || other->null != one->null ||
            !kernel_equal(row + one->start, row + other->start, size))
            return 0;
    }
    return 1;
}

/* Find the values of the RowData at `row`, part by part; return 0 if it is not one with these columns. */
static inline int kernel_match(kernel_rows *rows, const unsigned char *row, Py_ssize_t size)
{
    const unsigned char *at = row, *stop = row + size;
    Py_ssize_t index;
    for (index = 0; index < rows->width; index++) {
        kernel_part *part = rows->parts + index;
        kernel_place *place = rows->own + index;
        Py_ssize_t found;
        if (!part->known || at == stop || *at != part->tag || !(at = kernel_stretch(at + 1, stop, &found)))
            return 0;
        if (!kernel_is_variant(place, part->variants + part->last, row, at - row, at - row + found)) {
            int other = 0;
            while (other < part->known &&
                   !kernel_is_variant(place, part->variants + other, row, at - row, at - row + found))
                other++;
            if (other == part->known)
                return 0;
            part->last = other;
        }
        at += found;
    }
    return at == stop && kernel_twins(rows, rows->own, row);
}

/* Remember the outline of the row that kernel_match has found. */
static inline void kernel_learn(kernel_rows *rows, const unsigned char *row, Py_ssize_t size)
{
    kernel_outline *outline = rows->outlines + (size & (KERNEL_OUTLINES - 1));
    Py_ssize_t index, done = 0, gaps = size;
    if (!rows->gap_bytes || !rows->patience)
        return;
    rows->patience--;
    outline->size = 0;
    for (index = 0; index < rows->width; index++)
        gaps -= rows->own[index].stop - rows->own[index].start;
    if (gaps > rows->gap_bytes)
        return;
    gaps = 0;
    for (index = 0; index < rows->width; index++) {
        outline->places[index] = rows->own[index];
        memcpy(outline->gaps + gaps, row + done, rows->own[index].start - done);
        gaps += rows->own[index].start - done;
        done = rows->own[index].stop;
    }
    memcpy(outline->gaps + gaps, row + done, size - done);
    outline->size = size;
}

/* Return how many of the rows have an outline, counted from the first. starts: of rows of its size. */
static inline int kernel_alike(
    const kernel_rows *rows, const kernel_outline *outline, const unsigned char *const *starts, int count)
{
    const unsigned char *gaps = outline->gaps;
    Py_ssize_t index, done = 0;
    int row;
    for (index = 0; index <= rows->width; index++) {
        Py_ssize_t stop = index < rows->width ? outline->places[index].start : outline->size, size = stop - done;
        for (row = 0; row < count && kernel_equal(starts[row] + done, gaps, size); row++)
            continue;
        count = row;
        gaps += size;
        if (index < rows->width)
            done = outline->places[index].stop;
    }
    if (rows->twins) {
        for (row = 0; row < count && kernel_twins(rows, outline->places, starts[row]); row++)
            continue;
        count = row;
    }
    return count;
}

/* ---- values */

static inline int kernel_mark(PyObject *bitmap, Py_ssize_t index, int valid)
{
    if (index >> 3 == Py_SIZE(bitmap)) {
        char *byte = kernel_extend(bitmap, 1);
        if (byte == NULL)
            return -1;
        *byte = 0;
    }
    if (valid)
        PyByteArray_AS_STRING(bitmap)[index >> 3] |= (char)(1 << (index & 7));
    return 0;
}

/* Count values that are no NULL. */
static inline int kernel_count(kernel_part *part, int count)
{
    int index;
    for (index = 0; *part->nulls && index < count; index++)
        if (kernel_mark(part->validity, *part->count + index, 1) < 0)
            return -1;
    *part->count += count;
    return 1;
}

/* Copy a text or the bytes of a BINARY; return 0 to decline. */
static inline int kernel_put_text(const kernel_part *part, char *to, const unsigned char *at, Py_ssize_t size)
{
    if (part->format == 2 && size < part->width)
        return 0;
    return kernel_copy_ascii(to, (const char *)at, size) || (part->format == 1 && kernel_is_utf8(at, size));
}

/* Write an integer of `width` bytes; return 0 to decline. */
static inline int kernel_put_integer(int width, char *to, const unsigned char *at, Py_ssize_t size)
{
    int64_t value;
    int32_t b4;
    int16_t b2;
    if (!kernel_integer(at, size, &value))
        return 0;
    switch (width) {
    case 8:
        memcpy(to, &value, 8);
        return 1;
    case 4:
        b4 = (int32_t)value;
        memcpy(to, &b4, 4);
        return b4 == value;
    case 2:
        b2 = (int16_t)value;
        memcpy(to, &b2, 2);
        return b2 == value;
    default:
        *to = (char)value;
        return (int8_t)value == value;
    }
}

/* Write a value of fixed size; return 0 to decline. to: room for `slot` bytes. */
static inline int kernel_put_fixed(const kernel_part *part, char *to, const unsigned char *at, Py_ssize_t size)
{
    int64_t whole;
    int32_t days;
    double real;
    switch (part->format) {
    case 3: /* INTEGER */
        return kernel_put_integer(part->width, to, at, size);
    case 4: /* DECIMAL */
        return kernel_decimal(at, size, part->precision, part->scale, (unsigned char *)to);
    case 5: /* DOUBLE */
        if (!kernel_short_double(at, size, &real))
            return 0;
        memcpy(to, &real, 8);
        return 1;
    case 8: /* DAY */
        if (size != 10 || kernel_day(at, &whole) != 1)
            return 0;
        days = (int32_t)whole;
        memcpy(to, &days, 4);
        return 1;
    case 9: /* INSTANT */
        if (kernel_instant(at, size, &whole) != 1)
            return 0;
        memcpy(to, &whole, 8);
        return 1;
    }
    return 0;
}

/* Append a value to the part's Target. Return 1 if done, 0 to decline, -1 with an exception. */
static inline int kernel_put_value(kernel_part *part, const unsigned char *at, Py_ssize_t size)
{
    Py_ssize_t before = Py_SIZE(part->data);
    int32_t end;
    char *to;
    if (part->slot) {
        if ((to = kernel_extend(part->data, part->slot)) == NULL)
            return -1;
        if (kernel_put_fixed(part, to, at, size))
            return kernel_count(part, 1);
    } else {
        if (size > INT32_MAX - before)
            return 0;
        if ((to = kernel_extend(part->data, size)) == NULL)
            return -1;
        if (kernel_put_text(part, to, at, size)) {
            end = (int32_t)(before + size);
            if ((to = kernel_extend(part->offsets, 4)) == NULL)
                return -1;
            memcpy(to, &end, 4);
            return kernel_count(part, 1);
        }
    }
    kernel_truncate(part->data, before);
    return 0;
}

/* Append the values of the current row from the part `index` on. Return the first part whose value was declined, or
   the number of parts; -1 with an exception. */
static inline Py_ssize_t kernel_put_values(kernel_rows *rows, Py_ssize_t index)
{
    for (; index < rows->width; index++) {
        kernel_part *part = rows->parts + index;
        const kernel_place *place = rows->places + index;
        if (part->format) {
            int done = place->null ? 0 : kernel_put_value(part, rows->row + place->start, place->stop - place->start);
            if (done <= 0)
                return done < 0 ? -1 : index;
        }
    }
    return rows->width;
}

/* Append one part's values of rows with one outline. Return 1 if done, 0 to decline, -1 with an exception. The part's
   count stays. */
static inline int kernel_put_column(
    kernel_part *part, const kernel_place *place, const unsigned char *const *starts, int count)
{
    Py_ssize_t size = place->stop - place->start, before = Py_SIZE(part->data);
    char *to, *ends;
    int index, done = 1;
    if (part->slot) {
        if ((to = kernel_extend(part->data, count * part->slot)) == NULL)
            return -1;
        if (part->format == 3 && part->width == 4)
            for (index = 0; index < count && done; index++, to += 4)
                done = kernel_put_integer(4, to, starts[index] + place->start, size);
        else
            for (index = 0; index < count && done; index++, to += part->slot)
                done = kernel_put_fixed(part, to, starts[index] + place->start, size);
    } else {
        if (count * size > INT32_MAX - before)
            return 0;
        if ((to = kernel_extend(part->data, count * size)) == NULL)
            return -1;
        for (index = 0; index < count && done; index++, to += size)
            done = kernel_put_text(part, to, starts[index] + place->start, size);
        if (done) {
            if ((ends = kernel_extend(part->offsets, 4 * count)) == NULL)
                return -1;
            for (index = 1; index <= count; index++, ends += 4) {
                int32_t end = (int32_t)(before + index * size);
                memcpy(ends, &end, 4);
            }
        }
    }
    if (!done)
        kernel_truncate(part->data, before);
    return done;
}

/* Append rows with one outline, column by column. Return 1 if done, 0 if nothing was appended, -1 with an exception. */
static inline int kernel_put_run(
    kernel_rows *rows, const kernel_outline *outline, const unsigned char *const *starts, int count)
{
    Py_ssize_t index;
    int done = 1;
    for (index = 0; index < rows->width; index++) {
        kernel_part *part = rows->parts + index;
        const kernel_place *place = outline->places + index;
        if (part->format && (place->null || (done = kernel_put_column(part, place, starts, count)) <= 0))
            break;
    }
    if (done < 0)
        return -1;
    if (index < rows->width) {
        while (index--) {
            kernel_part *part = rows->parts + index;
            const kernel_place *place = outline->places + index;
            Py_ssize_t each = part->slot ? part->slot : place->stop - place->start;
            if (!part->format)
                continue;
            kernel_truncate(part->data, Py_SIZE(part->data) - count * each);
            if (!part->slot)
                kernel_truncate(part->offsets, Py_SIZE(part->offsets) - 4 * count);
        }
        return 0;
    }
    for (index = 0; index < rows->width; index++)
        if (rows->parts[index].format && kernel_count(rows->parts + index, count) < 0)
            return -1;
    return 1;
}

/* Append rows from the part `*index` of the row `row` on, 0 to find its values first.
   base, ends: start and stop of each RowData in turn.
   Return the row that has another form, or `count`, and set `*index` to -1; or the row of which a value was declined,
   and set `*index` to its part. -1 with an exception. */
static inline Py_ssize_t kernel_put_rows(kernel_rows *rows, const unsigned char *base, const long long *ends,
                                         Py_ssize_t row, Py_ssize_t count, Py_ssize_t *index)
{
    const unsigned char *starts[KERNEL_RUN];
    Py_ssize_t place = *index;
    *index = -1;
    for (; row < count; row++, place = 0) {
        if (!place) {
            Py_ssize_t size = ends[2 * row + 1] - ends[2 * row];
            const kernel_outline *outline = rows->outlines + (size & (KERNEL_OUTLINES - 1));
            int run = 0, most = rows->alone ? 1 : KERNEL_RUN, done = 0;
            rows->row = base + ends[2 * row];
            if (outline->size == size && size) {
                do {
                    starts[run++] = base + ends[2 * row];
                    row++;
                } while (run < most && row < count && ends[2 * row + 1] - ends[2 * row] == size);
                row -= run;
                run = kernel_alike(rows, outline, starts, run);
            }
            if (run > 1 && (done = kernel_put_run(rows, outline, starts, run)) < 0)
                return -1;
            if (done) {
                rows->patience = KERNEL_PATIENCE;
                row += run - 1;
                continue;
            }
            if (run) {
                rows->places = outline->places;
                rows->patience = KERNEL_PATIENCE;
                rows->alone = run > 1 ? KERNEL_ALONE : rows->alone - (rows->alone > 0);
            } else if (kernel_match(rows, rows->row, size)) {
                rows->places = rows->own;
                kernel_learn(rows, rows->row, size);
            } else {
                return row;
            }
        }
        if ((place = kernel_put_values(rows, place)) < 0)
            return -1;
        if (place < rows->width) {
            *index = place;
            return row;
        }
    }
    return row;
}

#endif
