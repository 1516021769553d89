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
   cuts: where `count` numbers begin and end that may differ; positions are relative to the entry's start. */
#define KERNEL_FORM_BYTES 256
#define KERNEL_FORM_CUTS 3

typedef struct {
    Py_ssize_t size;
    int count;
    struct {
        int tag;
        Py_ssize_t start, stop;
    } cuts[KERNEL_FORM_CUTS];
    kernel_head head;
    unsigned char bytes[KERNEL_FORM_BYTES];
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

static inline void kernel_shift_text(Py_ssize_t *start, Py_ssize_t *stop, Py_ssize_t by)
{
    if (*stop)
        *start += by, *stop += by;
}

/* Move the positions of the texts that are there. */
static inline void kernel_shift(kernel_head *head, Py_ssize_t by)
{
    kernel_shift_text(&head->journal_start, &head->journal_stop, by);
    kernel_shift_text(&head->schema_start, &head->schema_stop, by);
    kernel_shift_text(&head->table_start, &head->table_stop, by);
    kernel_shift_text(&head->gtid_start, &head->gtid_stop, by);
    kernel_shift_text(&head->snapshot_start, &head->snapshot_stop, by);
    kernel_shift_text(&head->own_gtid_start, &head->own_gtid_stop, by);
}

/* Read an Entry that differs from an earlier one in numbers only; return 0 to decline. */
static inline int kernel_entry_again(
    kernel_head *head, const kernel_form *form, const unsigned char *base, Py_ssize_t start, Py_ssize_t stop)
{
    const unsigned char *entry = base + start, *content;
    Py_ssize_t done = 0, size;
    int index;
    if (!form->size || stop - start <= form->size)
        return 0;
    for (index = 0; index < form->count; index++) {
        Py_ssize_t at = form->cuts[index].start;
        if (!kernel_equal(entry + done, form->bytes + done, at - done))
            return 0;
        for (done = form->cuts[index].stop - 1; at < done; at++)
            if (entry[at] < 128)
                return 0;
        if (entry[done++] > 127)
            return 0;
    }
    if (!kernel_equal(entry + done, form->bytes + done, form->size - done))
        return 0;
    if (!(content = kernel_stretch(entry + form->size, base + stop, &size)) || content + size != base + stop)
        return 0;
    *head = form->head;
    for (index = 0; index < form->count; index++) {
        Py_ssize_t at = form->cuts[index].stop;
        uint64_t value = 0;
        while (at > form->cuts[index].start)
            value = value << 7 | (entry[--at] & 127);
        kernel_set(head, (unsigned)form->cuts[index].tag, value);
    }
    kernel_shift(head, start);
    head->store_start = content - base;
    head->store_stop = stop;
    return 1;
}

/* Remember an Entry, whose fields are header, type and content. */
static inline void kernel_keep(kernel_form *form, const kernel_head *head, const unsigned char *base, Py_ssize_t start,
                               const unsigned char *content)
{
    Py_ssize_t size = content - (base + start);
    int index;
    if (!head->ascii || size > KERNEL_FORM_BYTES || form->count > KERNEL_FORM_CUTS)
        return;
    memcpy(form->bytes, base + start, size);
    for (index = 0; index < form->count; index++)
        form->cuts[index].start -= start, form->cuts[index].stop -= start;
    form->head = *head;
    kernel_shift(&form->head, -start);
    form->size = size;
}

/* Read the Entry base[start:stop].
   kind: its entryType if it names none; kinds: the largest known one.
   form: of an earlier entry that may be similar; gets that of this one. */
static inline kernel_head kernel_entry(const unsigned char *base, Py_ssize_t start, Py_ssize_t stop, int kind,
                                       int kinds, const kernel_name *names, kernel_form *form)
{
    const unsigned char *at = base + start, *end = base + stop, *content = NULL;
    unsigned order = 0; /* the tags of the entry's fields */
    kernel_head head = {0};
    if (kernel_entry_again(&head, form, base, start, stop))
        return head;
    form->size = 0;
    form->count = 0;
    head.kind = kind;
    while (at < end) {
        unsigned tag = *at++;
        order = order << 8 | tag;
        if (tag == 0x10) {
            if (at == end || *at > 127)
                return head;
            if (*at > 0 && *at <= kinds)
                head.kind = *at;
            at++;
        } else if (tag == 0x0A || tag == 0x1A) {
            Py_ssize_t size;
            content = at;
            if (!(at = kernel_stretch(at, end, &size)))
                return head;
            if (tag == 0x1A) {
                head.store_start = at - base;
                head.store_stop = head.store_start + size;
            } else if (!kernel_header(&head, base, at, at + size, names, form)) {
                return head;
            }
            at += size;
        } else {
            return head;
        }
    }
    head.ascii = kernel_short_ascii(base + head.journal_start, head.journal_stop - head.journal_start) &&
                 kernel_short_ascii(base + head.schema_start, head.schema_stop - head.schema_start) &&
                 kernel_short_ascii(base + head.table_start, head.table_stop - head.table_start) &&
                 kernel_short_ascii(base + head.gtid_start, head.gtid_stop - head.gtid_start);
    head.known = 1;
    if (order == 0x0A101A)
        kernel_keep(form, &head, base, start, content);
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
   twin: the part whose value must be the same, -1 for none.
   value: of the current row; NULL for NULL.
   data, offsets, validity, count, nulls: of its Target. */
typedef struct {
    const kernel_variant *variants;
    int known, last, tag, twin, format, width, precision, scale;
    const unsigned char *value;
    Py_ssize_t size;
    PyObject *data, *offsets, *validity;
    Py_ssize_t *count, *nulls;
} kernel_part;

static inline int kernel_is_variant(
    kernel_part *part, const kernel_variant *variant, const unsigned char *at, const unsigned char *end)
{
    Py_ssize_t size = end - at - variant->head_size, found;
    if (variant->null) {
        if (size || !kernel_equal(at, variant->head, variant->head_size))
            return 0;
        part->value = NULL;
        part->size = 0;
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
    part->value = at;
    part->size = found;
    return 1;
}

/* Find the values of the RowData at `at`; return 0 if it is not one with these columns. */
static inline int kernel_match(
    kernel_part *parts, Py_ssize_t width, const unsigned char *at, const unsigned char *stop)
{
    Py_ssize_t place;
    for (place = 0; place < width; place++) {
        kernel_part *part = parts + place;
        Py_ssize_t size;
        if (!part->known || at == stop || *at != part->tag || !(at = kernel_stretch(at + 1, stop, &size)))
            return 0;
        if (!kernel_is_variant(part, part->variants + part->last, at, at + size)) {
            int other = 0;
            while (other < part->known && !kernel_is_variant(part, part->variants + other, at, at + size))
                other++;
            if (other == part->known)
                return 0;
            part->last = other;
        }
        if (part->twin >= 0) {
            kernel_part *twin = parts + part->twin;
            if (twin->size != part->size || !twin->value != !part->value)
                return 0;
            if (part->value && !kernel_equal(twin->value, part->value, part->size))
                return 0;
        }
        at += size;
    }
    return at == stop;
}

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

static inline int kernel_put_bytes(PyObject *out, const void *value, Py_ssize_t size)
{
    char *to = kernel_extend(out, size);
    if (to == NULL)
        return -1;
    memcpy(to, value, size);
    return 1;
}

/* Append a text and its end. Return 0 if it has other characters than ASCII. */
static inline int kernel_put_ascii(kernel_part *part)
{
    Py_ssize_t before = Py_SIZE(part->data);
    int32_t end;
    char *to;
    if (part->size > INT32_MAX - before)
        return 0;
    if ((to = kernel_extend(part->data, part->size)) == NULL)
        return -1;
    if (!kernel_copy_ascii(to, (const char *)part->value, part->size)) {
        kernel_truncate(part->data, before);
        return 0;
    }
    end = (int32_t)(before + part->size);
    return kernel_put_bytes(part->offsets, &end, 4);
}

/* Append an integer of `width` bytes. */
static inline int kernel_put_integer(kernel_part *part)
{
    int64_t value;
    int8_t b1;
    int16_t b2;
    int32_t b4;
    if (!kernel_integer(part->value, part->size, &value))
        return 0;
    switch (part->width) {
    case 8:
        return kernel_put_bytes(part->data, &value, 8);
    case 4:
        b4 = (int32_t)value;
        return b4 == value ? kernel_put_bytes(part->data, &b4, 4) : 0;
    case 2:
        b2 = (int16_t)value;
        return b2 == value ? kernel_put_bytes(part->data, &b2, 2) : 0;
    default:
        b1 = (int8_t)value;
        return b1 == value ? kernel_put_bytes(part->data, &b1, 1) : 0;
    }
}

/* Append the value of the current row to the part's Target. Return 1 if done, 0 to decline, -1 with an exception. */
static inline int kernel_put_value(kernel_part *part)
{
    unsigned char number[16];
    int64_t whole;
    int32_t days;
    double real;
    int done = 0;
    if (part->value == NULL)
        return 0;
    switch (part->format) {
    case 1: /* TEXT */
        done = kernel_put_ascii(part);
        break;
    case 2: /* BINARY */
        if (part->size >= part->width)
            done = kernel_put_ascii(part);
        break;
    case 3: /* INTEGER */
        done = kernel_put_integer(part);
        break;
    case 4: /* DECIMAL */
        if (kernel_decimal(part->value, part->size, part->precision, part->scale, number))
            done = kernel_put_bytes(part->data, number, 16);
        break;
    case 5: /* DOUBLE */
        if (kernel_short_double(part->value, part->size, &real))
            done = kernel_put_bytes(part->data, &real, 8);
        break;
    case 8: /* DAY */
        if (part->size == 10 && kernel_day(part->value, &whole) == 1) {
            days = (int32_t)whole;
            done = kernel_put_bytes(part->data, &days, 4);
        }
        break;
    case 9: /* INSTANT */
        if (kernel_instant(part->value, part->size, &whole) == 1)
            done = kernel_put_bytes(part->data, &whole, 8);
        break;
    }
    if (done > 0) {
        if (*part->nulls && kernel_mark(part->validity, *part->count, 1) < 0)
            return -1;
        ++*part->count;
    }
    return done;
}

/* Append the values of the current row from the part `place` on. Return the first part whose value was declined, or
   the number of parts; -1 with an exception. */
static inline Py_ssize_t kernel_put_values(kernel_part *parts, Py_ssize_t width, Py_ssize_t place)
{
    for (; place < width; place++) {
        if (parts[place].format) {
            int done = kernel_put_value(parts + place);
            if (done <= 0)
                return done < 0 ? -1 : place;
        }
    }
    return width;
}

#endif
