/* C functions for primitives.pxd that Cython cannot express: growing a bytearray cheaply, digits, UTF-8, CRC32.

   All names begin with kernel_, and all sizes are in bytes. Functions that can fail return NULL with a Python
   exception set. */

#ifndef CANAL_HA_KERNEL_PRIMITIVES_H
#define CANAL_HA_KERNEL_PRIMITIVES_H

#include <Python.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

/* memcpy without a function call for small sizes, because most pieces are short. The two areas must not overlap. */
static inline void kernel_copy(char *to, const char *from, Py_ssize_t size)
{
    if (size > 64) {
        memcpy(to, from, size);
    } else if (size >= 32) {
        memcpy(to, from, 32);
        memcpy(to + size - 32, from + size - 32, 32);
    } else if (size >= 16) {
        memcpy(to, from, 16);
        memcpy(to + size - 16, from + size - 16, 16);
    } else if (size >= 8) {
        memcpy(to, from, 8);
        memcpy(to + size - 8, from + size - 8, 8);
    } else if (size >= 4) {
        memcpy(to, from, 4);
        memcpy(to + size - 4, from + size - 4, 4);
    } else if (size) {
        to[0] = from[0];
        to[size >> 1] = from[size >> 1];
        to[size - 1] = from[size - 1];
    }
}

/* Copy the same bytes several times, one behind the other; return the end of the last copy. */
static inline char *kernel_repeat(char *to, const char *from, Py_ssize_t size, Py_ssize_t count)
{
    Py_ssize_t done = size, all = size * count;
    kernel_copy(to, from, size);
    for (; done < all; done *= 2)
        memcpy(to + done, to, done < all - done ? done : all - done);
    return to + all;
}

/* ---- bytearrays */

/* Grow `out` by `size` bytes. Takes the interpreter's lock, which the caller may or may not hold. */
static char *kernel_grow(PyObject *out, Py_ssize_t size)
{
    Py_ssize_t old = Py_SIZE(out);
    PyGILState_STATE lock = PyGILState_Ensure();
    char *at = NULL;
    if (size > (PY_SSIZE_T_MAX >> 2) - old) {
        PyErr_NoMemory();
    } else {
        Py_ssize_t wanted = old + size;
        /* Allocate half as much again, then set the size directly, because a second PyByteArray_Resize would release
           the surplus of a small array. */
        if (PyByteArray_Resize(out, wanted + (wanted >> 1) + 64) == 0) {
            Py_SET_SIZE(out, wanted);
            at = PyByteArray_AS_STRING(out);
            at[wanted] = 0;
            at += old;
        }
    }
    PyGILState_Release(lock);
    return at;
}

/* Append `size` bytes of undefined content; return their address. */
static inline char *kernel_extend(PyObject *out, Py_ssize_t size)
{
    PyByteArrayObject *array = (PyByteArrayObject *)out;
    Py_ssize_t old = Py_SIZE(out);
    if (size >= array->ob_alloc - (array->ob_start - array->ob_bytes) - old)
        return kernel_grow(out, size);
    char *at = array->ob_start + old;
    Py_SET_SIZE(out, old + size);
    at[size] = 0; /* the zero byte behind every bytearray is not part of its size */
    return at;
}

/* Shorten `out` to `size` bytes and keep its memory. The caller makes sure that `out` has at least that many. */
static inline void kernel_truncate(PyObject *out, Py_ssize_t size)
{
    if (size < Py_SIZE(out)) {
        Py_SET_SIZE(out, size);
        ((PyByteArrayObject *)out)->ob_start[size] = 0;
    }
}

/* ---- digits */

static const char kernel_pairs[] =
    "0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243444546474849"
    "5051525354555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899";

/* Write at most 20 decimal digits that end before `end`; return the address of the first one. */
static inline char *kernel_digits(char *end, uint64_t value)
{
    while (value >= 100) {
        end -= 2;
        memcpy(end, kernel_pairs + value % 100 * 2, 2);
        value /= 100;
    }
    if (value >= 10) {
        end -= 2;
        memcpy(end, kernel_pairs + value * 2, 2);
    } else {
        *--end = (char)('0' + value);
    }
    return end;
}

/* value: less than 100. */
static inline void kernel_two_digits(char *to, uint64_t value)
{
    memcpy(to, kernel_pairs + value * 2, 2);
}

/* Return the number of decimal digits of `value`. */
static inline Py_ssize_t kernel_digits_size(uint64_t value)
{
    Py_ssize_t size = 1;
    for (; value >= 10000; value /= 10000)
        size += 4;
    return size + (value >= 10) + (value >= 100) + (value >= 1000);
}

/* ---- text */

/* Copy like kernel_copy; return 1 if all bytes are ASCII. */
static inline int kernel_copy_ascii(char *to, const char *from, Py_ssize_t size)
{
    const uint64_t high = 0x8080808080808080ULL;
    uint64_t words[4], seen = 0;
    if (size < 8) {
        for (Py_ssize_t index = 0; index < size; index++)
            seen |= (unsigned char)(to[index] = from[index]);
        return !(seen & 0x80);
    }
#if defined(__SSE2__)
    if (size >= 16) {
        const char *end = from + size - 16;
        __m128i part, all = _mm_loadu_si128((const __m128i *)end);
        _mm_storeu_si128((__m128i *)(to + size - 16), all);
        for (; end - from > 32; from += 32, to += 32) {
            __m128i other = _mm_loadu_si128((const __m128i *)(from + 16));
            part = _mm_loadu_si128((const __m128i *)from);
            _mm_storeu_si128((__m128i *)to, part);
            _mm_storeu_si128((__m128i *)(to + 16), other);
            all = _mm_or_si128(all, _mm_or_si128(part, other));
        }
        for (; from < end; from += 16, to += 16) {
            part = _mm_loadu_si128((const __m128i *)from);
            _mm_storeu_si128((__m128i *)to, part);
            all = _mm_or_si128(all, part);
        }
        return !_mm_movemask_epi8(all);
    }
#endif
    const char *last = from + size - 8;
    char *last_to = to + size - 8;
    for (; last + 8 - from >= 32; from += 32, to += 32) {
        memcpy(words, from, 32);
        memcpy(to, words, 32);
        seen |= words[0] | words[1] | words[2] | words[3];
    }
    for (; last + 8 - from > 8; from += 8, to += 8) {
        memcpy(words, from, 8);
        memcpy(to, words, 8);
        seen |= words[0];
    }
    memcpy(words, last, 8);
    memcpy(last_to, words, 8);
    seen |= words[0];
    return !(seen & high);
}

static inline int kernel_is_ascii(const unsigned char *at, Py_ssize_t size)
{
    const uint64_t high = 0x8080808080808080ULL;
    uint64_t words[4];
    for (; size >= 32; at += 32, size -= 32) {
        memcpy(words, at, 32);
        if ((words[0] | words[1] | words[2] | words[3]) & high)
            return 0;
    }
    for (; size >= 8; at += 8, size -= 8) {
        memcpy(words, at, 8);
        if (words[0] & high)
            return 0;
    }
    for (; size; at++, size--)
        if (*at & 0x80)
            return 0;
    return 1;
}

/* Return 1 if the bytes are well-formed UTF-8, as defined by table 3-7 of the Unicode standard. */
static inline int kernel_is_utf8(const unsigned char *at, Py_ssize_t size)
{
    const unsigned char *stop = at + size;
    while (at < stop) {
        unsigned char lead = *at;
        if (lead < 0x80) {
            at++;
            continue;
        }
        int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
        unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
        unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
        if (lead < 0xC2 || lead > 0xF4 || stop - at <= more || at[1] < low || at[1] > high)
            return 0;
        for (int index = 2; index <= more; index++)
            if ((at[index] & 0xC0) != 0x80)
                return 0;
        at += more + 1;
    }
    return 1;
}

static inline Py_ssize_t kernel_latin1_size(const unsigned char *at, Py_ssize_t size)
{
    const uint64_t ones = 0x0101010101010101ULL;
    Py_ssize_t left = size, more = 0;
    while (left >= 8) {
        uint64_t sums = 0, word; /* one sum in each byte, of at most 255 bits */
        Py_ssize_t words = left >> 3 < 255 ? left >> 3 : 255;
        left -= words << 3;
        for (; words; words--, at += 8) {
            memcpy(&word, at, 8);
            sums += word >> 7 & ones;
        }
        sums = (sums & 0x00FF00FF00FF00FFULL) + (sums >> 8 & 0x00FF00FF00FF00FFULL);
        more += (Py_ssize_t)(sums * 0x0001000100010001ULL >> 48);
    }
    for (; left; left--)
        more += *at++ >> 7;
    return size + more;
}

#if defined(__x86_64__) && defined(__GNUC__)
static unsigned char kernel_latin1_places[256][16];
static int kernel_latin1_shuffles; /* 0: unknown, 1: supported by this processor, -1: not supported */

/* Fill the table of shuffles: for each pattern of the high bits of eight bytes, the bytes of their eight pairs that are
   written. */
static void kernel_latin1_init(void)
{
    for (int pattern = 0; pattern < 256; pattern++)
        for (int index = 0, place = 0; index < 8; index++) {
            kernel_latin1_places[pattern][place++] = (unsigned char)(2 * index);
            if (pattern >> index & 1)
                kernel_latin1_places[pattern][place++] = (unsigned char)(2 * index + 1);
        }
    kernel_latin1_shuffles = __builtin_cpu_supports("sse4.1") && __builtin_cpu_supports("popcnt") ? 1 : -1;
}

/* Convert eight bytes at a time while at least sixteen are left, because each step stores sixteen bytes. A step builds
   a pair of lead and trail byte for each input byte and keeps the bytes that the encoding needs. Advance *to; return
   the number of bytes read. */
__attribute__((target("sse4.1,popcnt"))) static Py_ssize_t kernel_latin1_pairs(
    char **to, const unsigned char *at, Py_ssize_t size)
{
    const __m128i one = _mm_set1_epi8(1), lead = _mm_set1_epi8((char)0xC2), trail = _mm_set1_epi8((char)0xBF);
    const unsigned char *start = at;
    char *out = *to;
    for (; size >= 16; at += 8, size -= 8) {
        __m128i bytes = _mm_loadl_epi64((const __m128i *)at);
        int pattern = _mm_movemask_epi8(bytes);
        __m128i first = _mm_or_si128(_mm_and_si128(_mm_srli_epi16(bytes, 6), one), lead);
        __m128i pairs = _mm_unpacklo_epi8(_mm_blendv_epi8(bytes, first, bytes), _mm_and_si128(bytes, trail));
        __m128i places = _mm_loadu_si128((const __m128i *)kernel_latin1_places[pattern]);
        _mm_storeu_si128((__m128i *)out, _mm_shuffle_epi8(pairs, places));
        out += 8 + __builtin_popcount((unsigned)pattern);
    }
    *to = out;
    return at - start;
}
#endif

/* Write Latin-1 bytes as UTF-8. to: room for kernel_latin1_size bytes. */
static inline void kernel_latin1(char *to, const unsigned char *at, Py_ssize_t size)
{
    const unsigned char *stop = at + size;
#if defined(__x86_64__) && defined(__GNUC__)
    if (!kernel_latin1_shuffles)
        kernel_latin1_init();
    if (size >= 16 && kernel_latin1_shuffles > 0)
        at += kernel_latin1_pairs(&to, at, size);
#endif
    while (at < stop) {
        if (stop - at >= 8 && kernel_is_ascii(at, 8)) {
            memcpy(to, at, 8);
            at += 8, to += 8;
            continue;
        }
        unsigned char byte = *at++;
        unsigned char high = byte >> 7;
        if (at == stop && !high) {
            *to = (char)byte;
        } else { /* after an ASCII byte, the next character overwrites to[1] */
            to[0] = (char)(high ? 0xC2 | (byte >> 6 & 1) : byte);
            to[1] = (char)(byte & 0xBF);
            to += 1 + high;
        }
    }
}

/* Return 1 if a JSON text needs no escapes for these bytes: ASCII without control characters, quotes, backslashes. */
static inline int kernel_is_plain(const unsigned char *at, Py_ssize_t size)
{
    const uint64_t ones = 0x0101010101010101ULL, high = ones << 7;
    unsigned char few[8] = "aaaaaaaa";
    uint64_t word, other, seen = 0;
    const unsigned char *last = few;
    if (size < 8) {
        kernel_copy((char *)few, (const char *)at, size);
        at = few;
    } else {
        last = at + size - 8;
    }
    for (;; at += 8) {
        if (at > last)
            at = last;
        memcpy(&word, at, 8);
        seen |= word | ((word - 0x20 * ones) & ~word);
        other = word ^ 0x22 * ones;
        seen |= (other - ones) & ~other;
        other = word ^ 0x5C * ones;
        seen |= (other - ones) & ~other;
        other = word ^ 0x7F * ones;
        seen |= (other - ones) & ~other;
        if (seen & high)
            return 0;
        if (at == last)
            return 1;
    }
}

/* Return the character at `at` if a JSON text has to escape it, else -1. The bytes are well-formed UTF-8. */
static inline int kernel_escaped(const unsigned char *at)
{
    if (*at < 0x20 || *at == '"' || *at == '\\' || *at == 0x7F)
        return *at;
    return *at == 0xC2 && at[1] <= 0xA0 ? at[1] : -1;
}

/* Return the letter after the backslash; 0 for the form \u00XX. */
static inline char kernel_escape_letter(int escaped)
{
    switch (escaped) {
    case '"':
    case '\\':
        return (char)escaped;
    case '\n':
        return 'n';
    case '\r':
        return 'r';
    case '\t':
        return 't';
    }
    return 0;
}

/* Return the number of bytes that kernel_quoted writes. */
static inline Py_ssize_t kernel_quoted_size(const unsigned char *at, Py_ssize_t size)
{
    const unsigned char *stop = at + size;
    Py_ssize_t total = 2;
    while (at < stop) {
        int escaped = kernel_escaped(at);
        total += escaped < 0 ? 1 : kernel_escape_letter(escaped) ? 2 : 6;
        at += escaped > 0x7F ? 2 : 1;
    }
    return total;
}

/* Write well-formed UTF-8 between quotes, with canal's escapes. */
static inline void kernel_quoted(char *to, const unsigned char *at, Py_ssize_t size)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *stop = at + size;
    *to++ = '"';
    while (at < stop) {
        int escaped = kernel_escaped(at);
        if (escaped < 0) {
            *to++ = (char)*at++;
            continue;
        }
        at += escaped > 0x7F ? 2 : 1;
        *to++ = '\\';
        char letter = kernel_escape_letter(escaped);
        if (letter) {
            *to++ = letter;
        } else {
            memcpy(to, "u00", 3);
            to[3] = digits[escaped >> 4];
            to[4] = digits[escaped & 15];
            to += 5;
        }
    }
    *to = '"';
}

/* ---- CRC32 as in zlib: polynomial 0xEDB88320, bits reflected */

static uint32_t kernel_crc_tables[8][256];

static void kernel_crc_init(void)
{
    for (uint32_t index = 0; index < 256; index++) {
        uint32_t crc = index;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
        kernel_crc_tables[0][index] = crc;
    }
    for (int table = 1; table < 8; table++)
        for (uint32_t index = 0; index < 256; index++) {
            uint32_t crc = kernel_crc_tables[table - 1][index];
            kernel_crc_tables[table][index] = crc >> 8 ^ kernel_crc_tables[0][crc & 255];
        }
}

/* Update a CRC, eight bytes at a time. The argument and the result lack the final inversion. */
static inline uint32_t kernel_crc_bytes(uint32_t crc, const unsigned char *at, Py_ssize_t size)
{
#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    for (; size >= 8; at += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        word ^= crc;
        crc = kernel_crc_tables[7][word & 255] ^ kernel_crc_tables[6][word >> 8 & 255] ^
              kernel_crc_tables[5][word >> 16 & 255] ^ kernel_crc_tables[4][word >> 24 & 255] ^
              kernel_crc_tables[3][word >> 32 & 255] ^ kernel_crc_tables[2][word >> 40 & 255] ^
              kernel_crc_tables[1][word >> 48 & 255] ^ kernel_crc_tables[0][word >> 56];
    }
#endif
    for (; size; at++, size--)
        crc = crc >> 8 ^ kernel_crc_tables[0][(crc ^ *at) & 255];
    return crc;
}

#if defined(__x86_64__) && defined(__GNUC__)
static int kernel_crc_folds;

static const unsigned char kernel_crc_slide[48] = {
    128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 0,   1,   2,   3,   4,   5,   6,   7,
    8,   9,   10,  11,  12,  13,  14,  15,  128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128};

/* Fold by carry-less multiplication (Gopal and others, "Fast CRC Computation for Generic Polynomials Using
   PCLMULQDQ", Intel 2009, with its constants for this polynomial). size: at least 16. If it is not a multiple of 16,
   the odd bytes come first, preceded by zeros, which do not change the result. */
__attribute__((target("pclmul,sse4.1"))) static uint32_t kernel_crc_fold(
    uint32_t crc, const unsigned char *at, Py_ssize_t size)
{
    const __m128i by64 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
    const __m128i by16 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    const __m128i by8 = _mm_set_epi64x(0, 0x0163cd6124);
    const __m128i reduce = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    const __m128i low = _mm_setr_epi32(~0, 0, ~0, 0);
    __m128i lanes[4], folded, begin = _mm_cvtsi32_si128((int)crc);
    __m128i sum = _mm_xor_si128(_mm_loadu_si128((const __m128i *)at), begin);
    Py_ssize_t odd = size & 15;
    int lane;

    if (odd) {
        const unsigned char *slide = kernel_crc_slide + odd;
        sum = _mm_shuffle_epi8(sum, _mm_loadu_si128((const __m128i *)slide));
        begin = _mm_shuffle_epi8(begin, _mm_loadu_si128((const __m128i *)(slide + 16)));
        at += odd, size -= odd;
        begin = _mm_xor_si128(begin, _mm_loadu_si128((const __m128i *)at));
        folded = _mm_clmulepi64_si128(sum, by16, 0x00);
        sum = _mm_xor_si128(_mm_clmulepi64_si128(sum, by16, 0x11), _mm_xor_si128(folded, begin));
    }
    at += 16, size -= 16;
    if (size >= 112) {
        lanes[0] = sum;
        for (lane = 1; lane < 4; lane++)
            lanes[lane] = _mm_loadu_si128((const __m128i *)at + lane - 1);
        for (at += 48, size -= 48; size >= 64; at += 64, size -= 64)
            for (lane = 0; lane < 4; lane++) {
                folded = _mm_clmulepi64_si128(lanes[lane], by64, 0x00);
                lanes[lane] = _mm_clmulepi64_si128(lanes[lane], by64, 0x11);
                lanes[lane] = _mm_xor_si128(lanes[lane], folded);
                lanes[lane] = _mm_xor_si128(lanes[lane], _mm_loadu_si128((const __m128i *)at + lane));
            }
        sum = lanes[0];
        for (lane = 1; lane < 4; lane++) {
            folded = _mm_clmulepi64_si128(sum, by16, 0x00);
            sum = _mm_xor_si128(_mm_clmulepi64_si128(sum, by16, 0x11), _mm_xor_si128(folded, lanes[lane]));
        }
    }
    for (; size >= 16; at += 16, size -= 16) {
        folded = _mm_clmulepi64_si128(sum, by16, 0x00);
        sum = _mm_xor_si128(_mm_clmulepi64_si128(sum, by16, 0x11),
                            _mm_xor_si128(folded, _mm_loadu_si128((const __m128i *)at)));
    }
    folded = _mm_clmulepi64_si128(sum, by16, 0x10);
    sum = _mm_xor_si128(_mm_srli_si128(sum, 8), folded);
    folded = _mm_srli_si128(sum, 4);
    sum = _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(sum, low), by8, 0x00), folded);
    folded = _mm_clmulepi64_si128(_mm_and_si128(sum, low), reduce, 0x10);
    folded = _mm_clmulepi64_si128(_mm_and_si128(folded, low), reduce, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(sum, folded), 1);
}
#endif

static inline uint32_t kernel_crc32(const unsigned char *at, Py_ssize_t size)
{
    uint32_t crc = 0xFFFFFFFFu;
    if (!kernel_crc_tables[0][1]) {
        kernel_crc_init();
#if defined(__x86_64__) && defined(__GNUC__)
        kernel_crc_folds = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#endif
    }
#if defined(__x86_64__) && defined(__GNUC__)
    if (size >= 16 && kernel_crc_folds)
        return ~kernel_crc_fold(crc, at, size);
#endif
    return ~kernel_crc_bytes(crc, at, size);
}

/* ---- shortest digits */

static uint64_t kernel_powers[325][2];

/* Store 10 to the power of `index`: its 128 most significant bits, rounded up. */
static inline void kernel_power(int index, uint64_t high, uint64_t low)
{
    kernel_powers[index][0] = high;
    kernel_powers[index][1] = low;
}

static inline uint64_t kernel_rounded_to_odd(const uint64_t *power, uint64_t value)
{
    unsigned __int128 low = (unsigned __int128)power[1] * value, high = (unsigned __int128)power[0] * value;
    high += (uint64_t)(low >> 64);
    return (uint64_t)(high >> 64) | ((uint64_t)high > 1);
}

/* Return the shortest decimal number that reads back as significand * 2**exponent, as digits times 10**tens; of
   several, the nearest. Both neighbouring doubles must be equally far away. exponent: -1074 to -1. (Giulietti, "The
   Schubfach way to render doubles", 2020.) */
static inline uint64_t kernel_shortest(uint64_t significand, int exponent, int *tens)
{
    int zeros = __builtin_ctzll(significand);
    if (-exponent <= zeros) {
        *tens = 0;
        return significand >> -exponent;
    }
    int odd = significand & 1;
    int k = (exponent * 1262611) >> 22;
    int shift = exponent + ((-k * 1741647) >> 19) + 1;
    const uint64_t *power = kernel_powers[-k];
    uint64_t lower = kernel_rounded_to_odd(power, (4 * significand - 2) << shift) + odd;
    uint64_t value = kernel_rounded_to_odd(power, (4 * significand) << shift);
    uint64_t upper = kernel_rounded_to_odd(power, (4 * significand + 2) << shift) - odd;
    uint64_t digits = value / 4;
    *tens = k;
    if (digits >= 10) {
        uint64_t fewer = digits / 10;
        int down = lower <= 40 * fewer, up = 40 * fewer + 40 <= upper;
        if (down != up) {
            *tens = k + 1;
            return fewer + up;
        }
    }
    int down = lower <= 4 * digits, up = 4 * digits + 4 <= upper;
    if (down != up)
        return digits + up;
    uint64_t middle = 4 * digits + 2;
    return digits + (value > middle || (value == middle && (digits & 1)));
}

static inline int kernel_ones(unsigned bits)
{
    return __builtin_popcount(bits);
}

/* Return 1 if the bytes are equal; without a function call for at most 16 bytes. */
static inline int kernel_same(const unsigned char *one, const unsigned char *other, Py_ssize_t size)
{
    uint64_t a, b, c, d;
    if (size > 16)
        return memcmp(one, other, size) == 0;
    if (size >= 8) {
        memcpy(&a, one, 8), memcpy(&b, other, 8);
        memcpy(&c, one + size - 8, 8), memcpy(&d, other + size - 8, 8);
        return a == b && c == d;
    }
    for (; size; one++, other++, size--)
        if (*one != *other)
            return 0;
    return 1;
}

/* Fill the tables once, before any code runs without the interpreter's lock. */
static inline void kernel_prepare(void)
{
    kernel_crc32((const unsigned char *)"", 0);
#if defined(__x86_64__) && defined(__GNUC__)
    if (!kernel_latin1_shuffles)
        kernel_latin1_init();
#endif
}

#endif
