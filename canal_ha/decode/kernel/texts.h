/* C functions for texts.pxd that Cython cannot express: reading numbers from digits without a copy.

   Unless its comment says otherwise, a function returns 1 if the text is a value, 0 if it is not, and 2 for a zero
   date. */

#ifndef CANAL_HA_KERNEL_TEXTS_H
#define CANAL_HA_KERNEL_TEXTS_H

#include <Python.h>
#include <float.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(FLT_EVAL_METHOD) && FLT_EVAL_METHOD == 0
#define KERNEL_DOUBLES_ARE_EXACT 1
#else
#define KERNEL_DOUBLES_ARE_EXACT 0
#endif

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define KERNEL_LITTLE_ENDIAN 1
#else
#define KERNEL_LITTLE_ENDIAN 0
#endif

/* Return the number of eight digits, which a word has in memory's order; -1 if one is no digit. */
static inline int64_t kernel_eight_digits(uint64_t word)
{
    const uint64_t high = 0xF0F0F0F0F0F0F0F0ULL, zeros = 0x3030303030303030ULL, pairs = 0x000000FF000000FFULL;
    if (((word & high) | ((word + 0x0606060606060606ULL) & high) >> 4) != (zeros | zeros >> 4))
        return -1;
    word -= zeros;
    word = word * 10 + (word >> 8);
    return (int64_t)(uint32_t)(((word & pairs) * (100 + (1000000ULL << 32)) +
                                (word >> 16 & pairs) * (1 + (10000ULL << 32))) >> 32);
}

/* Return the number of four to eight digits, or -1. */
static inline int64_t kernel_few_digits(const unsigned char *at, Py_ssize_t size)
{
    uint32_t first, last;
    uint64_t word;
    int missing = (int)(8 - size) * 8; /* bits in front, which become zeros; first and last can overlap */
    memcpy(&first, at, 4);
    memcpy(&last, at + size - 4, 4);
    word = (uint64_t)last << 32 | (uint64_t)first << missing;
    return kernel_eight_digits(word | (0x3030303030303030ULL & (((uint64_t)1 << missing) - 1)));
}

static inline int kernel_integer(const unsigned char *at, Py_ssize_t size, int64_t *value)
{
    uint64_t number = 0, limit = (uint64_t)INT64_MAX;
    int negative = size > 0 && *at == '-';
    if (negative) {
        at++;
        size--;
        limit++;
    }
    if (size < 1 || size > 19)
        return 0;
    if (KERNEL_LITTLE_ENDIAN && size > 3 && size < 9) {
        int64_t few = kernel_few_digits(at, size);
        *value = negative ? -few : few;
        return few >= 0;
    }
    for (; size; at++, size--) {
        unsigned digit = (unsigned)*at - '0';
        if (digit > 9)
            return 0;
        number = number * 10 + digit;
    }
    if (number > limit)
        return 0;
    *value = negative ? (int64_t)(0 - number) : (int64_t)number;
    return 1;
}

/* to: 16 bytes, little-endian. */
static inline int kernel_decimal(
    const unsigned char *at, Py_ssize_t size, int precision, int scale, unsigned char *to)
{
    unsigned __int128 number = 0;
    Py_ssize_t index;
    int digits = 0, decimals = 0, any = 0, fraction = 0;
    int negative = size > 0 && *at == '-';
    for (index = negative; index < size; index++) {
        unsigned digit = (unsigned)at[index] - '0';
        if (at[index] == '.' && !fraction) {
            fraction = 1;
            continue;
        }
        if (digit > 9)
            return 0;
        any = 1;
        if (fraction && decimals == scale) {
            if (digit)
                return 0;
            continue;
        }
        decimals += fraction;
        if (digits || digit)
            digits++;
        if (digits > precision)
            return 0;
        number = number * 10 + digit;
    }
    if (!any)
        return 0;
    for (; decimals < scale; decimals++) {
        if (digits && ++digits > precision)
            return 0;
        number *= 10;
    }
    if (negative)
        number = 0 - number;
    for (index = 0; index < 16; index++, number >>= 8)
        to[index] = (unsigned char)number;
    return 1;
}

/* Read a number of few digits, whose product with a power of ten is exact or rounded once (W. D. Clinger, "How to read
   floating point numbers accurately", 1990). If this returns 0, the text can still be a number. */
static inline int kernel_short_double(const unsigned char *at, Py_ssize_t size, double *value)
{
    static const double powers[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
                                    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    const unsigned char *stop = at + size;
    uint64_t number = 0;
    int digits = 0, point = 0, exponent = 0, negative, below = 0, more = 0, any = 0;
    if (!KERNEL_DOUBLES_ARE_EXACT)
        return 0;
    negative = at < stop && *at == '-';
    for (at += negative; at < stop; at++) {
        unsigned digit = (unsigned)*at - '0';
        if (*at == '.' && !point) {
            point = 1;
            continue;
        }
        if (digit > 9)
            break;
        any = 1;
        number = number * 10 + digit;
        digits += digits || digit;
        exponent -= point;
        if (digits > 15 || exponent < -100)
            return 0;
    }
    if (!any)
        return 0;
    if (at < stop) {
        if ((*at | 0x20) != 'e' || ++at == stop)
            return 0;
        below = *at == '-';
        if ((below || *at == '+') && ++at == stop)
            return 0;
        for (; at < stop; at++) {
            unsigned digit = (unsigned)*at - '0';
            if (digit > 9 || more > 999)
                return 0;
            more = more * 10 + (int)digit;
        }
        exponent += below ? -more : more;
    }
    if (exponent < -22 || exponent > 22)
        return 0;
    *value = exponent < 0 ? (double)number / powers[-exponent] : (double)number * powers[exponent];
    if (negative)
        *value = -*value;
    return 1;
}

/* Read any number of digits, a sign, a point and an exponent. Return 0 for a text that is longer than a server writes,
   is no number, or does not read as one in the locale of the process. */
static inline int kernel_long_double(const unsigned char *at, Py_ssize_t size, double *value)
{
    char text[64], *end;
    if (size >= (Py_ssize_t)sizeof text)
        return 0;
    memcpy(text, at, size);
    text[size] = 0;
    *value = strtod(text, &end);
    return end == text + size;
}

/* Return the number of exactly `count` digits, or -1. */
static inline int kernel_fixed_digits(const unsigned char *at, int count)
{
    int number = 0;
    for (; count; at++, count--) {
        unsigned digit = (unsigned)*at - '0';
        if (digit > 9)
            return -1;
        number = number * 10 + (int)digit;
    }
    return number;
}

/* Read a date of ten characters as days since 1970. */
static inline int kernel_day(const unsigned char *at, int64_t *days)
{
    static const int lengths[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int year = kernel_fixed_digits(at, 4), month = kernel_fixed_digits(at + 5, 2), day = kernel_fixed_digits(at + 8, 2);
    int64_t era, of_era, shifted;
    if (year < 0 || month < 0 || day < 0 || at[4] != '-' || at[7] != '-')
        return 0;
    if (!year || !month || !day)
        return 2;
    if (month > 12 || day > 31)
        return 0;
    if (day > lengths[month - 1] || (month == 2 && day == 29 && (year % 4 || (!(year % 100) && year % 400))))
        return 2;
    /* Years begin in March here, so that a leap day is the last day of its year. */
    shifted = month > 2 ? year : year - 1;
    era = shifted / 400;
    of_era = shifted - era * 400;
    *days = era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + (153 * ((month + 9) % 12) + 2) / 5 + day - 1 - 719468;
    return 1;
}

static inline int kernel_instant(const unsigned char *at, Py_ssize_t size, int64_t *value)
{
    int hours, minutes, seconds, found, micros = 0, index;
    int64_t days = 0;
    if (size != 19 && (size < 21 || size > 26))
        return 0;
    hours = kernel_fixed_digits(at + 11, 2);
    minutes = kernel_fixed_digits(at + 14, 2);
    seconds = kernel_fixed_digits(at + 17, 2);
    if (hours < 0 || hours > 23 || minutes < 0 || minutes > 59 || seconds < 0 || seconds > 59)
        return 0;
    if (at[10] != ' ' || at[13] != ':' || at[16] != ':')
        return 0;
    if (size > 19) {
        if (at[19] != '.' || (micros = kernel_fixed_digits(at + 20, (int)size - 20)) < 0)
            return 0;
        for (index = (int)size; index < 26; index++)
            micros *= 10;
    }
    found = kernel_day(at, &days);
    *value = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000000 + micros;
    return found;
}

/* Convert Latin-1 characters in UTF-8 back to bytes; return the number of bytes, or -1. to: room for `size` bytes. */
static inline Py_ssize_t kernel_narrow(unsigned char *to, const unsigned char *at, Py_ssize_t size)
{
    const unsigned char *stop = at + size;
    unsigned char *start = to;
    while (at < stop) {
        if (*at < 0x80) {
            *to++ = *at++;
        } else {
            if ((*at != 0xC2 && *at != 0xC3) || stop - at < 2 || (at[1] & 0xC0) != 0x80)
                return -1;
            *to++ = (unsigned char)(*at << 6 | (at[1] & 0x3F));
            at += 2;
        }
    }
    return to - start;
}

#endif
