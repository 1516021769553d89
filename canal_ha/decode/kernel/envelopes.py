"""The rows of an entry -> messages in Debezium's envelope, as JSON or Avro, and their keys.

A message is put together from pieces that the caller makes, and from the values of both images. The form of a column
says how a value is made of canal's text. The caller's function encodes texts that have another form than most texts
of the type: it decides what they mean, and whether they are refused.

    form                 texts                    JSON                          Avro
    TEXT, DOCUMENT       any, no partial update   string                        string
    INTEGER              whole numbers            number                        int, long
    DOUBLE, SINGLE       numbers                  number                        double, float
    BOOLEAN              0, 1                     true, false                   boolean
    DECIMAL              whole numbers, decimals                                bytes, the unscaled number
    BINARY               Latin-1                                                bytes, padded with zeros
    DAY                  yyyy-mm-dd               days since 1970               int
    INSTANT              date and time            ms or µs since 1970           long
    CLOCK                [-]h:mm:ss[.f]           µs                            long
    ZONED                date and time in UTC     ISO 8601 with Z               string
    OTHER                none                     from the caller's function    from the caller's function
"""

from __future__ import annotations

from array import array
from collections.abc import Callable

import canal_ha.decode.kernel.codes as k
import canal_ha.decode.kernel.layouts as ly
import canal_ha.decode.kernel.primitives as p
import canal_ha.decode.kernel.queue_rows as q
import canal_ha.decode.kernel.texts as t

_MINUS, _POINT, _ZERO, _COLON, _QUOTE = 0x2D, 0x2E, 0x30, 0x3A, 0x22
_CREATE, _UPDATE, _DELETE, _READ = 0x63, 0x75, 0x64, 0x72  # letters of `op`
_INT_MAX = (1 << 31) - 1
_SAFE_DIGITS = 15  # of a decimal number that differs as a double from all others with so many digits
_MOST_DIGITS = 18  # of a whole number that 64 bits hold, whatever the digits are
_REMEMBERED = 1024  # texts of a column with their encoded values
_SHORT = 32  # bytes of a text that is remembered
_ALL = (1 << 32) - 1
_CALL = b"JSON_"  # of JSON_REPLACE(...) and others; no document begins so
_DIFFERENT = "rows of one entry with different columns"


class ColumnForm:
    """How the values of a column are written.

    form: see above.
    label: what stands before a value: in JSON a comma and the name, in Avro the branch of the union.
    null: what is written for NULL, its label included.
    size: bytes of an INTEGER in Avro, 4 or 8; of a BINARY at least; digits of a DECIMAL.
    scale: of a DECIMAL.
    convert: returns the bytes for a text, the label included; may raise.
    """

    __slots__ = ("convert", "form", "known", "label", "null", "scale", "size")

    def __init__(
        self, form: int, label: bytes, null: bytes, convert: Callable[[str], bytes], size: int = 0, scale: int = 0
    ) -> None:
        self.form = form
        self.label = label
        self.null = null
        self.convert = convert
        self.size = size
        self.scale = scale
        self.known: dict[bytes, bytes] = {}


class Pieces:
    """What stands between the parts of a message.

    avro: numbers are variable-length ones, and values are not separated by commas.
    start, between, after: before the first image, between the images, after the second one.
    absent: instead of an image.
    image, image_end: around the values of an image.
    row_end: between the number of the row and the letter of the operation.
    key, key_end: around the values of a key.
    """

    __slots__ = ("absent", "avro", "between", "image", "image_end", "key", "key_end", "row_end", "start")

    def __init__(
        self,
        avro: bool,
        *,
        start: bytes,
        absent: bytes,
        image: bytes,
        image_end: bytes,
        between: bytes,
        row_end: bytes,
        key: bytes,
        key_end: bytes,
    ) -> None:
        self.avro = avro
        self.start = start
        self.absent = absent
        self.image = image
        self.image_end = image_end
        self.between = between
        self.row_end = row_end
        self.key = key
        self.key_end = key_end


class MessageShape:
    """What messages of entries with the same columns share.

    old, new: forms of the columns of the image before, and of the image after a change.
    sources: for each column of the new image its place in the row's after image, or -1 minus that in the before image.
    old_key, new_key: places of the key's columns in `old` and `new`; empty for messages without keys.
    compared: for each place of `new_key` that of the column in `old`; -1 if it has none.
    """

    __slots__ = ("compared", "new", "new_key", "old", "old_key", "pieces", "sources")

    def __init__(
        self,
        pieces: Pieces,
        old: list[ColumnForm],
        new: list[ColumnForm],
        sources: list[int],
        old_key: list[int],
        new_key: list[int],
        compared: list[int],
    ) -> None:
        self.pieces = pieces
        self.old = old
        self.new = new
        self.sources = sources
        self.old_key = old_key
        self.new_key = new_key
        self.compared = compared


class Envelopes:
    """The messages of one entry.

    keys: None without a key.
    values: None for a tombstone.
    partitions: of the messages; empty unless `partition_by` was called.
    """

    __slots__ = (
        "_count",
        "_end",
        "_hashed",
        "_middle",
        "_new_columns",
        "_old_columns",
        "_shape",
        "_src",
        "_text",
        "_tombstones",
        "keys",
        "partitions",
        "values",
    )  # fmt: skip

    def __init__(self, shape: MessageShape, middle: bytes, end: bytes, tombstones: bool) -> None:
        """Begin.

        middle: what stands between the images and the number of the row.
        end: what stands behind the letter of the operation.
        tombstones: whether one follows a delete.
        """
        self._shape = shape
        self._middle = middle
        self._end = end
        self._tombstones = tombstones
        self._text = bytearray()
        self._src = b""
        self._count = 0
        self._hashed = 0
        self._old_columns: list[int] = []
        self._new_columns: list[int] = []
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.partitions: list[int] = []

    def partition_by(self, hashed: int, old_columns: list[int], new_columns: list[int], count: int) -> None:
        """Find a partition for each message, by the image after the change, or that before it for a delete.

        hashed: of what precedes the columns; see queue_rows.row_hashes.
        old_columns, new_columns: places that count.
        count: number of partitions.
        """
        self._hashed = hashed
        self._old_columns = old_columns
        self._new_columns = new_columns
        self._count = count

    def write(self, src: bytes, places: array[int], images: ly.Images, event: int, snapshot: bool) -> None:
        """Append the messages of an entry's rows.

        src, places, images: see queue_rows.row_objects.
        event: what happened, see codes.
        snapshot: whether a snapshot has read the rows.
        Raises Broken, and what the columns' functions raise.
        """
        self._src = src
        before: object = None
        after: object = None
        new: list[ly.ColumnLayout] = []
        for row in range(p.length(places) >> 1):
            changed = images.row(src, p.item(places, 2 * row), p.item(places, 2 * row + 1))
            old = images.before.columns
            if row == 0:
                before = images.before.names
                after = images.after.names
            if images.before.names is not before or images.after.names is not after:
                raise p.Broken(_DIFFERENT)
            if changed or row == 0:
                new = self._new(old, images.after.columns)
            if event == k.EVENT_INSERT:
                self._put(_READ if snapshot else _CREATE, row, old, new)
            elif event == k.EVENT_DELETE:
                self._put(_DELETE, row, old, new)
            elif self._moved(old, new):
                self._put(_DELETE, row, old, new)
                self._put(_CREATE, row, old, new)
            else:
                self._put(_UPDATE, row, old, new)

    def _new(self, old: list[ly.ColumnLayout], after: list[ly.ColumnLayout]) -> list[ly.ColumnLayout]:
        """Return the columns of the new image."""
        found = []
        for place in self._shape.sources:
            if place >= len(after) or -1 - place >= len(old):
                raise p.Broken(_DIFFERENT)
            found.append(after[place] if place >= 0 else old[-1 - place])
        return found

    def _moved(self, old: list[ly.ColumnLayout], new: list[ly.ColumnLayout]) -> bool:
        """Return whether an update changes the key."""
        shape = self._shape
        for index in range(len(shape.compared)):
            place = shape.compared[index]
            if place >= len(old):
                raise p.Broken(_DIFFERENT)
            if place >= 0 and not q.same_value(self._src, old[place], new[shape.new_key[index]]):
                return True
        return False

    def _put(self, op: int, row: int, old: list[ly.ColumnLayout], new: list[ly.ColumnLayout]) -> None:
        """Append a message, and the tombstone behind it. old, new: only those count that the operation has."""
        shape = self._shape
        pieces = shape.pieces
        text = self._text
        p.truncate(text, 0)
        p.put(text, pieces.start)
        if op in (_UPDATE, _DELETE):
            self._put_image(old, shape.old)
        else:
            p.put(text, pieces.absent)
        p.put(text, pieces.between)
        if op == _DELETE:
            p.put(text, pieces.absent)
        else:
            self._put_image(new, shape.new)
        p.put(text, self._middle)
        if pieces.avro:
            p.put_varint(text, 2 * row)
        else:
            p.put_digits(text, row)
        p.put(text, pieces.row_end)
        p.put_byte(text, op)
        p.put(text, self._end)
        self.values.append(bytes(text))
        if op == _DELETE:
            self._keyed(op, old, shape.old, shape.old_key, self._old_columns)
        else:
            self._keyed(op, new, shape.new, shape.new_key, self._new_columns)

    def _keyed(
        self, op: int, image: list[ly.ColumnLayout], forms: list[ColumnForm], places: list[int], counted: list[int]
    ) -> None:
        """Append key and partition of the last message, and the tombstone behind it."""
        key = self._key(image, forms, places)
        partition = 0
        self.keys.append(key)
        if self._count:
            partition = self._partition(image, counted)
            self.partitions.append(partition)
        if op == _DELETE and key is not None and self._tombstones:
            self.values.append(None)
            self.keys.append(key)
            if self._count:
                self.partitions.append(partition)

    def _put_image(self, columns: list[ly.ColumnLayout], forms: list[ColumnForm]) -> None:
        pieces = self._shape.pieces
        text = self._text
        if len(columns) != len(forms):
            raise p.Broken(_DIFFERENT)
        p.put(text, pieces.image)
        for index in range(len(columns)):
            self._put_value(columns[index], forms[index], index == 0)
        p.put(text, pieces.image_end)

    def _key(self, columns: list[ly.ColumnLayout], forms: list[ColumnForm], places: list[int]) -> bytes | None:
        if not places:
            return None
        pieces = self._shape.pieces
        text = self._text
        p.truncate(text, 0)
        p.put(text, pieces.key)
        first = True
        for place in places:
            self._put_value(columns[place], forms[place], first)
            first = False
        p.put(text, pieces.key_end)
        return bytes(text)

    def _partition(self, columns: list[ly.ColumnLayout], places: list[int]) -> int:
        src = self._src
        hashed = self._hashed & _ALL
        for place in places:
            column = columns[place]
            if column.start != k.NULL:
                hashed ^= q.java_hash(src, column.start, column.stop)
        return p.magnitude(t.int32(hashed)) % self._count

    def _put_value(self, column: ly.ColumnLayout, form: ColumnForm, first: bool) -> None:
        """Append a value or NULL. first: of its image or key."""
        text = self._text
        src = self._src
        start = column.start
        stop = column.stop
        avro = self._shape.pieces.avro
        skip = 1 if first and not avro else 0  # the comma
        if start == k.NULL:
            p.put_slice(text, form.null, skip, p.held(form.null))
        else:
            at = p.size(text)
            p.put_slice(text, form.label, skip, p.held(form.label))
            done = _put_avro(text, src, start, stop, form) if avro else _put_json(text, src, start, stop, form)
            if not done:
                p.truncate(text, at)
                converted = _converted(src, start, stop, form)
                p.put_slice(text, converted, skip, p.held(converted))


def _converted(src: bytes, start: int, stop: int, form: ColumnForm) -> bytes:
    """Return what the caller's function makes of a text."""
    if not p.is_utf8(src, start, stop):
        raise p.Broken("a value that is no UTF-8")
    if stop - start > _SHORT:
        return form.convert(t.as_text(src, start, stop))
    text = src[start:stop]
    found = form.known.get(text)
    if found is None:
        found = form.convert(t.as_text(src, start, stop))
        if len(form.known) >= _REMEMBERED:
            form.known.clear()
        form.known[text] = found
    return found


# ---- values: each function returns False, and may leave bytes behind, for a text that the caller's function encodes


def _put_json(text: bytearray, src: bytes, start: int, stop: int, form: ColumnForm) -> bool:
    kind = form.form
    if kind == k.TEXT or (kind == k.DOCUMENT and not _is_call(src, start, stop)):
        q.put_string(text, src, start, stop)
        return True
    if kind == k.INTEGER:
        return _put_verbatim(text, src, start, stop)
    if kind == k.DOUBLE or kind == k.SINGLE:
        return _put_real(text, src, start, stop)
    if kind == k.BOOLEAN:
        if not _is_bit(src, start, stop):
            return False
        p.put(text, b"true" if p.u8(src, start) & 1 else b"false")
        return True
    if kind == k.ZONED:
        p.put_byte(text, _QUOTE)
        if not _put_zoned(text, src, start, stop):
            return False
        p.put_byte(text, _QUOTE)
        return True
    found, number = _temporal(kind, src, start, stop)
    if found:
        p.put_digits(text, number)
    return found == 1


def _put_avro(text: bytearray, src: bytes, start: int, stop: int, form: ColumnForm) -> bool:
    kind = form.form
    if kind == k.TEXT or (kind == k.DOCUMENT and not _is_call(src, start, stop)):
        if not p.is_utf8(src, start, stop):
            raise p.Broken("a value that is no UTF-8")
        p.put_varint(text, 2 * (stop - start))
        p.put_slice(text, src, start, stop)
        return True
    if kind == k.DOUBLE:
        return t.put_double(text, src, start, stop)
    if kind == k.SINGLE:
        return t.put_single(text, src, start, stop)
    if kind == k.BOOLEAN:
        if not _is_bit(src, start, stop):
            return False
        p.put_byte(text, p.u8(src, start) & 1)
        return True
    if kind == k.DECIMAL:
        return _put_decimal(text, src, start, stop, form.size, form.scale)
    if kind == k.BINARY:
        return _put_binary(text, src, start, stop, form.size)
    if kind == k.ZONED:
        at = p.size(text)
        p.put_byte(text, 0)
        if not _put_zoned(text, src, start, stop):
            return False
        p.set_byte(text, at, 2 * (p.size(text) - at - 1))
        return True
    if kind == k.INTEGER:
        found, number = _whole(src, start, stop, 0)
        if form.size == 4 and (number > _INT_MAX or number < -_INT_MAX - 1):
            return False
    else:
        found, number = _temporal(kind, src, start, stop)
    if found:
        p.put_varint(text, -2 * number - 1 if number < 0 else 2 * number)
    return found == 1


def _temporal(kind: int, src: bytes, start: int, stop: int) -> tuple[int, int]:
    """Return 1 and the number for a DAY, an INSTANT or a CLOCK; 0 for another form, and for a date that is no day."""
    found = 0
    number = 0
    if kind == k.DAY:
        found, number = t.day(src, start, stop)
    elif kind == k.INSTANT:
        found, number = t.instant(src, start, stop)
        if stop - start <= 23 and number < 0:  # no more than three decimals: a multiple of a thousand
            number = -(-number // 1000)
        elif stop - start <= 23:
            number //= 1000
    elif kind == k.CLOCK:
        found, number = _clock(src, start, stop)
    return 1 if found == 1 else 0, number


def _is_bit(src: bytes, start: int, stop: int) -> bool:
    """Return whether a text is 0 or 1."""
    return stop - start == 1 and p.u8(src, start) >> 1 == _ZERO >> 1


def _is_call(src: bytes, start: int, stop: int) -> bool:
    """Return whether a document is a partial update."""
    return stop - start >= p.held(_CALL) and p.same_bytes(src, start, start + p.held(_CALL), _CALL)


def _put_verbatim(text: bytearray, src: bytes, start: int, stop: int) -> bool:
    """Append a whole number that has no zeros before it."""
    first = start + 1 if start < stop and p.u8(src, start) == _MINUS else start
    digits = _digits(src, first, stop)
    if digits == 0 or first + digits != stop or (p.u8(src, first) == _ZERO and stop - start > 1):
        return False
    p.put_slice(text, src, start, stop)
    return True


def _put_real(text: bytearray, src: bytes, start: int, stop: int) -> bool:
    """Append a number as Python's repr() of the double, where that has the digits of the text."""
    first = start + 1 if start < stop and p.u8(src, start) == _MINUS else start
    whole = _digits(src, first, stop)
    point = first + whole
    if whole == 0 or (whole > 1 and p.u8(src, first) == _ZERO):
        return False
    if point == stop:
        if whole > _SAFE_DIGITS:
            return False
        p.put_slice(text, src, start, stop)
        p.put(text, b".0")
        return True
    decimals = _digits(src, point + 1, stop)
    if p.u8(src, point) != _POINT or decimals == 0 or point + 1 + decimals != stop or whole + decimals > _SAFE_DIGITS:
        return False
    if p.u8(src, stop - 1) == _ZERO and decimals > 1:
        return False
    if p.u8(src, first) == _ZERO and (p.u8(src, point + 1) == _ZERO):  # an exponent may be shorter
        return False
    p.put_slice(text, src, start, stop)
    return True


def _put_decimal(text: bytearray, src: bytes, start: int, stop: int, precision: int, scale: int) -> bool:
    """Append the bytes of an unscaled number, the highest first, behind how many they are."""
    found, number = _whole(src, start, stop, scale)
    if not found or (precision <= _MOST_DIGITS and p.magnitude(number) >= p.power(precision)):
        return False
    size = 1
    left = p.magnitude(number) >> 7
    while left:
        size += 1
        left >>= 8
    p.put_varint(text, 2 * size)
    p.put_big(text, number, size)
    return True


def _put_binary(text: bytearray, src: bytes, start: int, stop: int, size: int) -> bool:
    at = p.size(text)
    p.put_byte(text, 0)
    if not t.put_narrow(text, src, start, stop):
        return False
    held = p.size(text) - at - 1
    if held < size:
        t.put_zeros(text, size - held)
        held = size
    p.fill_varint(text, at, 1, 2 * held)
    return True


def _put_zoned(text: bytearray, src: bytes, start: int, stop: int) -> bool:
    """Append date and time in UTC; a fraction has six digits, or is left out if it is zero."""
    found, _ = t.instant(src, start, stop)
    if found != 1:
        return False
    p.put_slice(text, src, start, start + 10)
    p.put_byte(text, 0x54)
    p.put_slice(text, src, start + 11, start + 19)
    for at in range(start + 20, stop):
        if p.u8(src, at) != _ZERO:
            p.put_slice(text, src, start + 19, stop)
            for _ in range(26 - (stop - start)):
                p.put_byte(text, _ZERO)
            break
    p.put_byte(text, 0x5A)
    return True


def _clock(src: bytes, start: int, stop: int) -> tuple[int, int]:
    """Return 1 and the microseconds of a text of TIME; 0 for another form."""
    negative = start < stop and p.u8(src, start) == _MINUS
    if negative:
        start += 1
    hours = _digits(src, start, stop)
    at = start + hours
    if hours < 1 or hours > 4 or stop - at < 6 or p.u8(src, at) != _COLON or p.u8(src, at + 3) != _COLON:
        return 0, 0
    if _digits(src, at + 1, at + 3) != 2 or _digits(src, at + 4, at + 6) != 2:
        return 0, 0
    number = (_number(src, start, at) * 60 + _number(src, at + 1, at + 3)) * 60 + _number(src, at + 4, at + 6)
    at += 6
    decimals = 0
    if at < stop:
        decimals = _digits(src, at + 1, stop)
        if p.u8(src, at) != _POINT or decimals < 1 or decimals > 6 or at + 1 + decimals != stop:
            return 0, 0
    number = number * 1_000_000 + _number(src, stop - decimals, stop) * _power(6 - decimals)
    return 1, -number if negative else number


def _whole(src: bytes, start: int, stop: int, scale: int) -> tuple[int, int]:
    """Return 1 and a number times 10**scale; 0 for a text without so many decimals, or with more digits than 18."""
    negative = start < stop and p.u8(src, start) == _MINUS
    if negative:
        start += 1
    whole = _digits(src, start, stop)
    at = start + whole
    if whole == 0 or whole + scale > _MOST_DIGITS:
        return 0, 0
    number = _number(src, start, at)
    if scale:
        if stop - at != scale + 1 or p.u8(src, at) != _POINT or _digits(src, at + 1, stop) != scale:
            return 0, 0
        number = number * _power(scale) + _number(src, at + 1, stop)
    elif at != stop:
        return 0, 0
    return 1, -number if negative else number


def _digits(src: bytes, start: int, stop: int) -> int:
    """Return how many digits src[start:stop] begins with; not more than 20 count."""
    at = start
    while at < stop and at - start < 20 and _ZERO <= p.u8(src, at) <= _ZERO + 9:
        at += 1
    return at - start


def _number(src: bytes, start: int, stop: int) -> int:
    """Return the number of up to 18 digits."""
    number = 0
    for at in range(start, stop):
        number = number * 10 + p.u8(src, at) - _ZERO
    return number


def _power(exponent: int) -> int:
    number = 1
    for _ in range(exponent):
        number *= 10
    return number
