"""Sizes that AV1 codestreams declare: a decoder allocates these, whatever the AVIF file around them says."""

from __future__ import annotations

from collections.abc import Iterator

_SEQUENCE_HEADER = 1
_LONGEST = 400  # bytes of a sequence header, generously


def sizes(data: bytes) -> Iterator[tuple[int, int]]:
    """(height, width) that each sequence header of a codestream allows its frames."""
    at = 0
    while at < len(data):
        kind, extended, sized = data[at] >> 3 & 15, data[at] >> 2 & 1, data[at] >> 1 & 1
        at += 1 + extended
        length, shift = len(data) - at, 0
        if sized:
            length = 0
            while at < len(data):
                length |= (data[at] & 127) << shift
                at, shift = at + 1, shift + 7
                if data[at - 1] < 128 or shift > 56:
                    break
        if kind == _SEQUENCE_HEADER:
            yield _declared(_Bits(data[at : at + min(length, _LONGEST)]))
        at += length


def _declared(bits: _Bits) -> tuple[int, int]:
    """(height, width) in a sequence header, AV1 specification 5.5.1."""
    bits.take(4)  # profile, still picture
    if bits.take(1):  # a reduced header
        bits.take(5)
    else:
        delay = 0
        if bits.take(1):  # timing
            bits.take(64)
            if bits.take(1):
                bits.variable()
            if bits.take(1):  # model of the decoder
                delay = bits.take(5) + 1
                bits.take(42)
        display = bits.take(1)
        for _ in range(bits.take(5) + 1):  # operating points
            bits.take(12)
            if bits.take(5) > 7:
                bits.take(1)
            if delay and bits.take(1):
                bits.take(2 * delay + 1)
            if display and bits.take(1):
                bits.take(4)
    across, down = bits.take(4) + 1, bits.take(4) + 1
    width, height = bits.take(across) + 1, bits.take(down) + 1
    return height, width


class _Bits:
    """Numbers of a few bits each, the highest bit of a byte first. Beyond the end there are zeros."""

    def __init__(self, data: bytes):
        self._whole, self._left = int.from_bytes(data, "big"), 8 * len(data)

    def take(self, count: int) -> int:
        self._left -= count
        whole = self._whole >> self._left if self._left >= 0 else self._whole << -self._left
        return whole & ((1 << count) - 1)

    def variable(self) -> None:
        """A number after as many zeros as it has bits."""
        zeros = 0
        while zeros < 32 and not self.take(1):
            zeros += 1
        self.take(zeros)
