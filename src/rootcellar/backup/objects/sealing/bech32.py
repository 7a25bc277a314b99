"""Bech32 (BIP 173), the text form of age's keys: what they are for, the bytes, and a checksum of 30 bits.

As age uses it: no limit of 90 characters, and either all lower or all upper case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_ALPHABET: Final = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
_GENERATOR: Final = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)
_CHECKSUM: Final = 6


def encode(purpose: str, data: bytes) -> str:
    """Lower-case text; `purpose` is the part that people read."""
    values = _regrouped(data, 8, 5, pad=True)
    polymod = _polymod([*_expanded(purpose), *values, *[0] * _CHECKSUM]) ^ 1
    checksum = [polymod >> 5 * (_CHECKSUM - 1 - index) & 31 for index in range(_CHECKSUM)]
    return f"{purpose}1{''.join(_ALPHABET[value] for value in [*values, *checksum])}"


def decode(text: str) -> tuple[str, bytes]:
    """(purpose in lower case, bytes).  Raises ValueError, which never repeats the text: it may be secret."""
    lower = text.lower()
    purpose, one, rest = lower.rpartition("1")
    if text not in (lower, text.upper()) or not (purpose and one) or len(rest) < _CHECKSUM:
        raise ValueError("not the text of a key")
    if not (purpose.isascii() and purpose.isprintable()) or set(rest) - set(_ALPHABET):
        raise ValueError("not the text of a key")
    values = [_ALPHABET.index(character) for character in rest]
    if _polymod([*_expanded(purpose), *values]) != 1:
        raise ValueError("mistyped, or cut short: its checksum is wrong")
    return purpose, bytes(_regrouped(values[:-_CHECKSUM], 5, 8, pad=False))


def _expanded(purpose: str) -> list[int]:
    codes = purpose.encode("ascii")
    return [*(code >> 5 for code in codes), 0, *(code & 31 for code in codes)]


def _polymod(values: Iterable[int]) -> int:
    checksum = 1
    for value in values:
        top = checksum >> 25
        checksum = (checksum & 0x1FFFFFF) << 5 ^ value
        for index, generator in enumerate(_GENERATOR):
            checksum ^= generator if top >> index & 1 else 0
    return checksum


def _regrouped(values: Iterable[int], bits: int, wanted: int, *, pad: bool) -> list[int]:
    held, count, out = 0, 0, []
    for value in values:
        held, count = held << bits | value, count + bits
        while count >= wanted:
            count -= wanted
            out.append(held >> count)
            held &= (1 << count) - 1
    if pad and count:
        out.append(held << wanted - count)
    elif not pad and (count >= bits or held):
        raise ValueError("not the text of a key")
    return out
