"""Numbers in canal's text form: DECIMAL in MySQL's packed form, FLOAT and DOUBLE as Java 17 writes them."""

from __future__ import annotations

from math import floor

import canal_ha.decode.kernel.primitives as p

p.prepare()
_DOUBLE_FRACTION = (1 << 52) - 1
_SHORT_DECIMALS = 8  # most digits behind the point of numbers written without searching their shortest form

# How many digits of an integer a double cannot hold (JDK FloatingDecimal.insignificantDigitsNumber).
_INSIGNIFICANT = (
    *(0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 8, 8, 8, 9, 9),
    *(9, 9, 10, 10, 10, 11, 11, 11, 12, 12, 12, 12, 13, 13, 13, 14, 14, 14, 15, 15, 15, 15, 16, 16, 16, 17, 17, 17),
    *(18, 18, 18, 19),
)
_FIVE_BITS = tuple((5**n).bit_length() for n in range(28))


def _group_size(digits: int) -> int:
    """Return the bytes of a group of up to nine decimal digits (MySQL's dig2bytes)."""
    return 4 if digits > 6 else (digits + 1) >> 1


def decimal_size(precision: int, decimals: int) -> int:
    """Return the bytes of a packed DECIMAL(precision, decimals)."""
    whole = precision - decimals
    return (whole // 9 + decimals // 9) * 4 + _group_size(whole % 9) + _group_size(decimals % 9)


def decimal_text(src: bytes, at: int, precision: int, decimals: int) -> bytes:
    """Return the text; see `put_decimal`. Raises Broken also if bytes are missing."""
    if at + decimal_size(precision, decimals) > len(src):
        raise p.Broken("a DECIMAL beyond its bytes")
    text = bytearray()
    put_decimal(text, src, at, precision, decimals)
    return bytes(text)


def put_decimal(text: bytearray, src: bytes, at: int, precision: int, decimals: int) -> None:
    """Append canal's text, without a last, partial group of fraction digits that is zero (docs/protocol.md#decimals).

    The caller has checked that decimals <= precision > 0 and that `decimal_size` bytes exist. Raises Broken for a
    group with too large a value.
    """
    negative = p.u8(src, at) < 0x80
    sign_at = p.size(text)
    if negative:
        p.put_byte(text, 0x2D)
    zero = True  # no digit but 0 so far
    pos = at
    left = precision - decimals
    while left:
        digits = (left - 1) % 9 + 1
        value = _group(src, at, pos, digits, negative)
        pos += _group_size(digits)
        left -= digits
        if not zero:
            p.put_padded(text, value, 9)
        elif value:
            p.put_unsigned(text, value)
            zero = False
    if zero:
        p.put_byte(text, 0x30)
    if decimals:
        p.put_byte(text, 0x2E)
        fraction_at = p.size(text)
        left = decimals
        while left:
            digits = 9 if left > 9 else left
            value = _group(src, at, pos, digits, negative)
            pos += _group_size(digits)
            left -= digits
            if value or digits == 9:
                p.put_padded(text, value, digits)
            if value:
                zero = False
        if p.size(text) == fraction_at:
            p.put_byte(text, 0x30)
    if negative and zero:
        p.remove(text, sign_at)


def _group(src: bytes, at: int, pos: int, digits: int, negative: bool) -> int:
    """Return the group at `pos` of the number at `at`. Its first bit is inverted; in a negative number all are."""
    bits = _group_size(digits) << 3
    value = p.big(src, pos, bits >> 3)
    if pos == at:
        value ^= p.bit(bits - 1)
    if negative:
        value ^= p.bit(bits) - 1
    if value >= p.power(digits):
        p.broken("a group of DECIMAL digits holds %d", value)
    return value


def double_text(src: bytes, at: int) -> bytes:
    """Return the text; see `put_double`."""
    text = bytearray()
    put_double(text, src, at)
    return bytes(text)


def float_text(src: bytes, at: int) -> bytes:
    """Return the text; see `put_float`."""
    text = bytearray()
    put_float(text, src, at)
    return bytes(text)


def put_double(text: bytearray, src: bytes, at: int) -> None:
    """Append eight bytes, little-endian, as Java 17's Double.toString does. Raises Broken if bytes are missing."""
    if at + 8 > p.held(src):
        p.broken("a DOUBLE beyond its bytes")
    bits = p.u64(src, at)
    exponent = bits >> 52 & 0x7FF
    fraction = bits & _DOUBLE_FRACTION
    value = p.f64(src, at)
    if not _put_short(text, value, bits >> 63 != 0, False):
        # Java's digits are the shortest ones, as Python's, unless the value is a power of two (its two neighbours are
        # not equally far) or so large or small that a short number lies exactly between two doubles.
        if fraction and 0x010 < exponent < 0x3FF + 50:
            digits, tens = p.shortest(value if bits >> 63 == 0 else -value)
            _put_layout(text, bits >> 63 != 0, digits, tens)
        else:
            _put_exact(text, bits >> 63 != 0, exponent, fraction, 1023, 52)


def put_float(text: bytearray, src: bytes, at: int) -> None:
    """Append four bytes, little-endian, as Java 17's Float.toString does. Raises Broken if bytes are missing."""
    if at + 4 > p.held(src):
        p.broken("a FLOAT beyond its bytes")
    bits = p.u32(src, at)
    exponent = bits >> 23 & 0xFF
    fraction = bits & 0x7FFFFF
    value = p.f32(src, at)
    if not _put_short(text, value, bits >> 31 != 0, True):
        if fraction and 0x08 < exponent < 0x7F + 20:
            digits, tens = p.shortest_single(value if bits >> 31 == 0 else -value)
            _put_layout(text, bits >> 31 != 0, digits, tens)
        else:
            _put_exact(text, bits >> 31 != 0, exponent, fraction, 127, 23)


def _put_short(text: bytearray, value: float, negative: bool, is_single: bool) -> bool:
    """Write a number of few decimal digits between 0.001 and 10,000,000, or zero; return False if it is not one.

    So few digits (15 of a double, 6 of a float) identify a number, so the first ones that match are its shortest.
    """
    if negative:
        value = -value
    if value != 0.0 and not 0.001 <= value < 10_000_000.0:
        return False
    scale = 1
    for decimals in range(_SHORT_DECIMALS):
        digits = p.nearest(value * scale)
        if is_single and digits >= 1_000_000:
            return False
        back = digits / scale
        if (p.as_single(back) if is_single else back) == value:
            if negative:
                p.put_byte(text, 0x2D)
            p.put_unsigned(text, digits // scale)
            p.put_byte(text, 0x2E)
            p.put_padded(text, digits % scale, decimals or 1)
            return True
        scale *= 10
    return False


def _put_layout(text: bytearray, negative: bool, digits: int, tens: int) -> None:
    """Append `digits` times ten to the `tens` in Java's layout. digits: not zero, fewer than 20."""
    while digits % 10 == 0:
        digits //= 10
        tens += 1
    count = p.digits_size(digits)
    point = count + tens  # its place among the digits
    if negative:
        p.put_byte(text, 0x2D)
    after = 0  # digits behind the point
    if 0 < point < 8:
        if tens < 0:
            after = -tens
        else:
            digits *= p.power(tens)
    elif -3 < point <= 0:
        after = -tens
    else:
        after = count - 1
    unit = p.power(count if after > count else after)
    p.put_unsigned(text, digits // unit)
    p.put_byte(text, 0x2E)
    p.put_padded(text, digits % unit, after or 1)
    if point <= -3 or point >= 8:
        p.put_byte(text, 0x45)
        p.put_digits(text, point - 1)


def _put_exact(text: bytearray, negative: bool, exponent: int, fraction: int, bias: int, width: int) -> None:
    """Append `java_text`."""
    p.put(text, java_text(negative, exponent, fraction, bias, width))


def _layout(negative: bool, digits: str, point: int) -> bytes:
    """FloatingDecimal.getChars: 0.`digits` times ten to the `point`, without trailing zeros unless it is one digit."""
    count = len(digits)
    if 0 < point < 8:
        text = digits[:point].ljust(point, "0") + "." + (digits[point:] or "0")
    elif -3 < point <= 0:
        text = "0." + "0" * -point + digits
    else:
        text = digits[0] + "." + (digits[1:] if count > 1 else "0") + "E" + str(point - 1)
    return (("-" + text) if negative else text).encode("ascii")


def java_text(negative: bool, exponent: int, fraction: int, bias: int, width: int) -> bytes:
    """Format any binary floating point number by JDK 17's own algorithm. exponent, fraction: the raw fields."""
    if exponent == 2 * bias + 1:
        return b"NaN" if fraction else (b"-Infinity" if negative else b"Infinity")
    if exponent == 0:
        if not fraction:
            return b"-0.0" if negative else b"0.0"
        significant = fraction.bit_length()
        shift = width + 1 - significant
        fraction <<= shift
        exponent = 1 - shift
    else:
        significant = width + 1
        fraction |= 1 << width
    digits, point = _digits(exponent - bias, fraction << (52 - width), significant)
    return _layout(negative, digits.rstrip("0") or "0", point)


def _digits(exponent: int, fraction: int, significant: int) -> tuple[str, int]:
    """JDK 17 FloatingDecimal.BinaryToASCIIBuffer.dtoa: return the digits, and the point's place before them.

    fraction: 53 bits with the hidden one; significant: how many of them the type holds.
    """
    tail_zeros = (fraction & -fraction).bit_length() - 1
    bits = 53 - tail_zeros
    tiny = max(0, bits - exponent - 1)
    if tiny == 0 and -21 <= exponent <= 62:
        return _integer_digits(exponent, fraction, significant)
    guess = _estimate(exponent, fraction)
    b5 = max(0, -guess)
    b2 = b5 + tiny + exponent
    s5 = max(0, guess)
    s2 = s5 + tiny
    m2 = b2 - significant
    b2 -= bits - 1
    common = min(b2, s2)
    b2 -= common
    s2 -= common
    m2 -= common
    if bits == 1:
        m2 -= 1  # the neighbour below a power of two is half as far away
    if m2 < 0:
        b2 -= m2
        s2 -= m2
        m2 = 0
    value = (fraction >> tail_zeros) * 5**b5 << b2
    scale = 5**s5 << s2
    margin = 5**b5 << m2
    tens = scale * 10
    # The JDK computes in 32 or 64 bits if they suffice, with overflows, and then requires that the upper bound is
    # exceeded; with big numbers it only requires that it is reached.
    value_bits = bits + b2 + (_FIVE_BITS[b5] if b5 < 27 else b5 * 3)
    tens_bits = s2 + 1 + (_FIVE_BITS[s5 + 1] if s5 + 1 < 27 else (s5 + 1) * 3)
    width = 32 if value_bits < 32 and tens_bits < 32 else 64 if value_bits < 64 and tens_bits < 64 else 0
    digits: list[int] = []
    quotient, value = divmod(value, scale)
    value *= 10
    margin = _wrap(margin * 10, width)
    low = value < margin
    high = _wrap(value + margin, width) > tens if width else value + margin >= tens
    if quotient == 0 and not high:
        guess -= 1
    else:
        digits.append(quotient)
    if guess < -3 or guess >= 8:
        low = high = False  # scientific notation shows two digits at least
    while not low and not high:
        quotient, value = divmod(value, scale)
        value *= 10
        margin = _wrap(margin * 10, width)
        if margin > 0:
            low = value < margin
            high = _wrap(value + margin, width) > tens if width else value + margin >= tens
        else:
            low = high = True
        digits.append(quotient)
    over = _wrap(_wrap(value * 2, width) - tens, width)
    if high and (not low or over > 0 or (over == 0 and digits[-1] & 1)):
        guess += _round_up(digits)
    return "".join(map(str, digits)), guess + 1


def _wrap(value: int, width: int) -> int:
    """Return the value as a Java integer of that many bits; width 0: any size."""
    if width and value >> (width - 1):
        value &= (1 << width) - 1
        if value >> (width - 1):
            value -= 1 << width
    return value


def _integer_digits(exponent: int, fraction: int, significant: int) -> tuple[str, int]:
    value = fraction << (exponent - 52) if exponent >= 52 else fraction >> (52 - exponent)
    cut = exponent - significant - 1
    insignificant = _INSIGNIFICANT[cut] if exponent > significant and 1 < cut < len(_INSIGNIFICANT) else 0
    if insignificant:
        power = 10**insignificant
        value, rest = divmod(value, power)
        if rest >= power >> 1:
            value += 1
    text = str(value)
    return text, len(text) + insignificant


def _estimate(exponent: int, fraction: int) -> int:
    """Return the decimal exponent, or one more or less (FloatingDecimal.estimateDecExp)."""
    mantissa = 1.0 + (fraction & 0xFFFFFFFFFFFFF) / 4503599627370496.0
    return floor((mantissa - 1.5) * 0.289529654 + 0.176091259 + exponent * 0.301029995663981)


def _round_up(digits: list[int]) -> int:
    """Add one to the last digit; return 1 if all were nines, so that the point moves."""
    index = len(digits) - 1
    while digits[index] == 9:
        if index == 0:
            digits[0] = 1
            return 1
        digits[index] = 0
        index -= 1
    digits[index] += 1
    return 0
