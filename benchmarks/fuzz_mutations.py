"""How an input is damaged: one bit of each byte in turn, then cuts, splices, huge numbers, nesting, encodings."""

import re
from collections.abc import Callable
from random import Random

DIGITS = re.compile(rb"\d+")
NUMBERS = (
    b"9" * 4301,
    b"9" * 400,
    b"-1",
    b"0",
    b"4294967296",
    b"9223372036854775808",
    b"1e999",
    b"NaN",
    b"1" + b"0" * 30,
    b"0.5",
    "٣²".encode(),
)
INTEGERS = (b"\0\0\0\0", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"\0" * 8, b"\xff" * 8, b"\x7f" * 8)
NESTED = (
    *(b"[" * 1200, b"[" * 100_000, b"[" * 1200 + b"]" * 1200, b"[" * 950 + b"]" * 950),
    *(b'{"a":' * 1200, b"a = " + b"[" * 1200, b"a." * 20_000),
)
ODD = (
    b"\0",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\r",
    b"\r\n",
    b"\x85",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\\ud800",
    b"\t",
    b'"',
)
"""NUL, marks of byte orders, line ends; bytes that are no UTF-8, half a surrogate pair, marks of tables."""


def mutated(samples: list[bytes], which: int, number: int, count: int, draws: Random) -> bytes:
    """Input `number` of `count` made from one of the samples; the first half goes through its byte positions."""
    sample = samples[which]
    half = max(count // 2, 1)
    if number < half and sample:
        return _flipped(sample, number * max(len(sample), half) // half % len(sample), draws)
    changed = sample
    for _ in range(draws.choice((1, 1, 1, 2, 3))):
        changed = draws.choice(MUTATIONS)(changed, draws.choice(samples), draws)
    return changed


def _flipped(content: bytes, place: int, draws: Random) -> bytes:
    return content[:place] + bytes([content[place] ^ (1 << draws.randrange(8))]) + content[place + 1 :]


def _place(content: bytes, draws: Random) -> int:
    return draws.randint(0, len(content))


def _put(content: bytes, new: bytes, draws: Random) -> bytes:
    """In place of as many bytes, or between two."""
    place = _place(content, draws)
    return content[:place] + new + content[place + draws.choice((0, len(new))) :]


def _cut(content: bytes, other: bytes, draws: Random) -> bytes:
    return content[: _place(content, draws)]


def _without_beginning(content: bytes, other: bytes, draws: Random) -> bytes:
    return content[_place(content, draws) :]


def _flips(content: bytes, other: bytes, draws: Random) -> bytes:
    for _ in range(draws.randint(1, 8) if content else 0):
        content = _flipped(content, draws.randrange(len(content)), draws)
    return content


def _spliced(content: bytes, other: bytes, draws: Random) -> bytes:
    """A stretch of this or another sample, put somewhere."""
    first, last = sorted((_place(other, draws), _place(other, draws)))
    return _put(content, other[first : min(last, first + 2000)], draws)


def _joined(content: bytes, other: bytes, draws: Random) -> bytes:
    """The beginning of this and the end of another."""
    return content[: _place(content, draws)] + other[_place(other, draws) :]


def _without_stretch(content: bytes, other: bytes, draws: Random) -> bytes:
    first, last = sorted((_place(content, draws), _place(content, draws)))
    return content[:first] + content[last:]


def _numbered(content: bytes, other: bytes, draws: Random) -> bytes:
    """Another number for one that is there."""
    places = [match.span() for match in DIGITS.finditer(content)]
    if not places:
        return _put(content, draws.choice(NUMBERS), draws)
    first, last = draws.choice(places)
    return content[:first] + draws.choice(NUMBERS) + content[last:]


def _overwritten(content: bytes, other: bytes, draws: Random) -> bytes:
    new, place = draws.choice(INTEGERS), _place(content, draws)
    return content[:place] + new + content[place + len(new) :]


def _nested(content: bytes, other: bytes, draws: Random) -> bytes:
    return _put(content, draws.choice(NESTED), draws)


def _odd(content: bytes, other: bytes, draws: Random) -> bytes:
    return _put(content, draws.choice(ODD), draws)


def _encoded(content: bytes, other: bytes, draws: Random) -> bytes:
    """The text in another encoding."""
    text = content.decode("utf-8", "replace")
    return text.encode(draws.choice(("utf-16", "utf-16-be", "utf-32", "cp949", "latin-1")), "replace")


def _repeated(content: bytes, other: bytes, draws: Random) -> bytes:
    """A stretch many times over."""
    first = _place(content, draws)
    return _put(content, content[first : first + draws.randint(1, 20)] * draws.choice((10, 1000, 20_000)), draws)


def _random(content: bytes, other: bytes, draws: Random) -> bytes:
    return _put(content, draws.randbytes(draws.randint(1, 64)), draws)


def _nothing(content: bytes, other: bytes, draws: Random) -> bytes:
    return b""


MUTATIONS: tuple[Callable[[bytes, bytes, Random], bytes], ...] = (
    *(_cut, _without_beginning, _flips, _flips, _spliced, _joined, _without_stretch, _numbered, _numbered),
    *(_overwritten, _nested, _odd, _odd, _encoded, _repeated, _random, _nothing),
)
