r"""Translates table filters into RE2's syntax with the meaning that Python's `re` gives them, or refuses them.

In Python's `re`, `\w`, `\d` and `\s` are Unicode, `\Z` is the very end, `$` also matches before a last line end, and
`{,3}` counts from zero. RE2 silently reads some of this differently. So every item is parsed here, token by token, and
written again. Two differences remain: RE2's Unicode tables are newer than Python's, and RE2 counts U+0345 as a letter
because it folds into one.
"""

from __future__ import annotations

import re
from itertools import takewhile
from string import hexdigits

from canal_ha.model.excerpt import excerpt

_SPACES = r"\t-\r\x{1c}-\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}"
_NO_SPACES = (
    r"\x{0}-\x{8}\x{e}-\x{1b}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}"
    r"\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff}"
)
_KINDS = {"d": r"\p{Nd}", "D": r"\P{Nd}", "w": r"\p{L}\p{N}_", "s": _SPACES, "S": _NO_SPACES}  # inside brackets
_POSIX = {
    "alpha": r"\p{L}",
    "^alpha": r"\P{L}",
    "digit": r"\p{Nd}",
    "^digit": r"\P{Nd}",
    "alnum": r"\p{L}\p{Nd}",
    "lower": r"\p{Ll}\p{Lu}",  # letter case is ignored
    "upper": r"\p{Ll}\p{Lu}",
    "word": _KINDS["w"],
    "space": _SPACES,
    "^space": _NO_SPACES,
    "punct": "[:punct:]",
    "xdigit": "[:xdigit:]",
}
_CONTROLS = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}
_DOTTED = "iI\u0130\u0131"  # Python folds these four into one; RE2 knows the first two
_SURROGATES = range(0xD800, 0xE000)
_COUNT_DIGITS = 4  # most digits of a repeat; RE2 counts to 1000
_REPEAT = re.compile(r"\{([0-9]*)(,?)([0-9]*)\}")
_NAMED = re.compile(r"\(\?P<([^>]*)>")
_BOTH_ON = re.compile(r"\(\?[is]+:")  # flags that are always on
_COMMENT = re.compile(r"\(\?#(?:\\.|[^\\)])*\)", re.DOTALL)  # Python reads an escaped bracket as part of the comment
_CLASS_NAME = re.compile(r"\[:(\^?[a-z]+):\]")
_GROUPS = {
    "(?=": "look-ahead (?=…)",
    "(?!": "look-ahead (?!…)",
    "(?<=": "look-behind (?<=…)",
    "(?<!": "look-behind (?<!…)",
    "(?P=": "the back reference (?P=…)",
    "(?>": "the atomic group (?>…)",
    "(?(": "the condition (?(…)…)",
}
_FLAGS = re.compile(r"\(\?[aLimsux]*(?:-[imsx]+)?:")


class NotExpressible(Exception):
    """An expression that RE2 cannot express. The text names the obstacle."""


class NoExpression(NotExpressible):
    """An invalid expression in every dialect. The text says what is wrong."""


class TooLarge(NotExpressible):
    """An expression that is too large for RE2 once its repeats are written out."""


class Foreign(NotExpressible):
    """Syntax of another dialect, which the server's own lists do not accept either. The text names it."""


def translate(expression: str) -> str:
    """Translate an expression of Python's `re`, case-insensitive and with `.` for line ends too, for RE2.

    RE2 itself checks brackets, counts and size, and gets the same options. Raises NotExpressible.
    """
    return _Translation(expression).result()


class _Translation:
    """One pass over an expression. It keeps tokens separate until it knows what follows each `$`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._tokens: list[str] = []

    def result(self) -> str:
        while self._at < len(self._text):
            token = self._token()
            if token:  # "" for a comment
                self._tokens.append(token)
        self._check_ends()
        return "".join(r"\z" if token == "$" else token for token in self._tokens)

    # ---- outside brackets

    def _token(self) -> str:
        text, at = self._text, self._at
        char = text[at]
        if char == "\\":
            return self._escape()
        if char == "[":
            return self._set()
        if char == "(":
            return self._group()
        if char in "*+?" or (char == "{" and self._repeat()):
            return self._quantifier()
        self._at += 1
        return char if char in ".^$|)" else _literal(char)

    def _group(self) -> str:
        text, at = self._text, self._at
        comment = _COMMENT.match(text, at)
        if comment:
            self._at = comment.end()
            return ""
        named = _NAMED.match(text, at)
        if named and not named[1].isidentifier():
            raise NoExpression(f"{named[1]!r} is not a valid group name")
        opening = named or _BOTH_ON.match(text, at)
        if opening:
            self._at = opening.end()
            return "(?:"
        if text.startswith("(?:", at):
            self._at += 3
            return "(?:"
        if not text.startswith("(?", at):
            self._at += 1
            return "(?:"
        what = next((name for start, name in _GROUPS.items() if text.startswith(start, at)), "")
        flags = _FLAGS.match(text, at)
        if flags:
            what = f"the flags {flags[0]}…)"
        if not what:
            raise Foreign(f"{text[at : at + 4]} has no meaning here")
        raise NotExpressible(what)

    def _repeat(self) -> re.Match[str] | None:
        """Return the braces here if they are a repeat; `{}` and other text in braces is literal."""
        braces = _REPEAT.match(self._text, self._at)
        return braces if braces and braces[0] != "{}" else None

    def _quantifier(self) -> str:
        before = self._tokens[-1] if self._tokens else "(?:"
        if before in ("(?:", "|", "^", "$", r"\A", r"\z"):
            sign = self._text[self._at]
            which = "the first" if self._text.index(sign) == self._at else "one"
            raise NoExpression(f"nothing before {which} {sign} to repeat")
        if before[0] in "*+?{":
            raise NoExpression(f"a repetition of the repetition {before}")
        braces = self._repeat() if self._text[self._at] == "{" else None
        if braces is None:
            written = self._text[self._at]
            self._at += 1
        else:
            low, comma, high = braces.groups()
            if any(len(count.lstrip("0")) > _COUNT_DIGITS for count in (low, high)):
                raise TooLarge(f"{excerpt(braces[0])} counts too far")  # RE2 would read these braces as literals
            if high and int(low or 0) > int(high):
                raise NoExpression(f"{braces[0]} counts from more to fewer")
            written = f"{{{int(low or 0)}{comma}{high and int(high)}}}"
            self._at = braces.end()
        following = self._text[self._at : self._at + 1]
        if following == "+":
            raise NotExpressible(f"the possessive quantifier {self._text[self._at - 1]}+")
        if following == "?":  # lazy quantifiers match the same names
            self._at += 1
        return written

    def _check_ends(self) -> None:
        """Refuse a `$` with anything but ends after it in its branch: it can match before a line end. One pass."""
        last = True  # whether only ends follow this token
        closings: list[bool] = []  # the same for each closing bracket around this token, the innermost last
        following = ""
        for token in reversed(self._tokens):
            if token == "$" and not last:
                raise NotExpressible("$ with something after it, which may be a line end")
            if token == ")":
                last = last and not following.startswith(("*", "+", "{"))
                closings.append(last)
            elif token == "(?:":
                last = False
                if closings:
                    closings.pop()
            elif token == "|":  # the other branches do not follow it
                last = closings[-1] if closings else True
            elif token not in ("$", r"\z", "?"):
                last = False
            following = token

    # ---- escapes

    def _escape(self) -> str:
        char = self._text[self._at + 1 : self._at + 2]
        if char in _KINDS and char:
            self._at += 2
            return f"[{_KINDS[char]}]"
        if char == "W":
            self._at += 2
            return f"[^{_KINDS['w']}]"
        if char in ("A", "Z"):
            self._at += 2
            return r"\A" if char == "A" else r"\z"
        if char in ("b", "B"):
            raise NotExpressible(rf"the word boundary \{char}")
        return _literal(self._escaped_character(in_set=False))

    def _escaped_character(self, *, in_set: bool) -> str:
        r"""Return the character that `\...` means here, and move behind it."""
        text, start = self._text, self._at + 1
        char = text[start : start + 1]
        if not char:
            raise NoExpression("the expression ends with a backslash")
        if char in _HEX_DIGITS:
            most = _HEX_DIGITS[char]
            digits = "".join(takewhile(hexdigits.__contains__, text[start + 1 : start + 1 + most]))
            if len(digits) < most:
                raise NoExpression(rf"\{char}{digits} is incomplete: write \{char} and {most} hexadecimal digits")
            if int(digits, 16) > 0x10FFFF:
                raise NoExpression(rf"\{char}{digits} is not a character")
            self._at = start + 1 + len(digits)
            return chr(int(digits, 16))
        if char in "0123456789" and char:
            octal = re.compile("0[0-7]{0,2}|[1-3][0-7]{2}" if not in_set else "[0-3][0-7]{0,2}|[4-7][0-7]?").match(
                text, start
            )
            if octal is None:
                raise NotExpressible(rf"the back reference \{char}")
            self._at = octal.end()
            return chr(int(octal[0], 8))
        self._at = start + 1
        if char in _CONTROLS:
            return chr(_CONTROLS[char])
        if in_set and char == "b":
            return "\b"
        if char.isascii() and char.isalpha():
            raise Foreign(rf"\{char} has no meaning here")
        return char

    # ---- brackets

    def _set(self) -> str:
        self._at += 1
        negated = self._text.startswith("^", self._at)
        self._at += negated
        parts: list[str] = []
        first = self._at
        while True:
            if self._at >= len(self._text):
                raise NoExpression("a [ without a ]")
            if self._text[self._at] == "]" and self._at > first:
                self._at += 1
                return f"[{'^' * negated}{''.join(parts)}]"
            parts.append(self._member())

    def _member(self) -> str:
        """Translate one character, range or class of a set, to stand between brackets."""
        low = self._one()
        if not self._text.startswith("-", self._at) or self._text[self._at + 1 : self._at + 2] in ("", "]"):
            return _code(low) + (_others(low) if low in _DOTTED else "") if len(low) == 1 else low
        self._at += 1
        high = self._one()
        if len(low) != 1 or len(high) != 1 or high < low:
            raise NoExpression("a range in [ ] whose ends are not single characters in order")
        folded = any(low <= char <= high for char in _DOTTED)
        return f"{_code(low)}-{_code(high)}" + ("".join(map(_code, _DOTTED)) if folded else "")

    def _one(self) -> str:
        """Return the next character of a set, or RE2's text of a class, which is longer."""
        text, at = self._text, self._at
        if text[at] == "\\":
            kind = text[at + 1 : at + 2]
            if kind == "W":
                raise NotExpressible(r"\W inside [ ]")
            if kind in _KINDS and kind:
                self._at += 2
                return _KINDS[kind]
            return self._escaped_character(in_set=True)
        named = _CLASS_NAME.match(text, at)
        if named:
            if named[1] not in _POSIX:
                raise NotExpressible(f"the class {named[0]}: use one of {', '.join(_POSIX)}")
            self._at = named.end()
            return _POSIX[named[1]]
        self._at += 1
        return text[at]


def _literal(char: str) -> str:
    if char in _DOTTED:
        return f"[{char}{_others(char)}]"
    return char if char.isascii() and (char.isalnum() or char == "_") else _code(char)


def _others(char: str) -> str:
    return "".join(other for other in _DOTTED if other != char)


def _code(char: str) -> str:
    if ord(char) in _SURROGATES:
        raise NotExpressible("a lone surrogate, which no name has")
    return rf"\x{{{ord(char):x}}}"
