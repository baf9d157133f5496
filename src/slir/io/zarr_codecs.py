"""Zarr arrays whose chunks are unpacked into no more memory than a chunk has.

zarr's own codecs unpack whatever a stream grows to; others take their place here. A codec that is not known is refused.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, replace
from typing import Any

import zarr
from numcodecs.abc import Codec
from zarr.abc.codec import BytesBytesCodec
from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec, TransposeCodec

from slir.io.unpacking import unpacked

#: Codecs whose results are as large as what goes in, but for numbers of other types.
_HARMLESS = (
    "shuffle", "delta", "fixedscaleoffset", "quantize", "bitround", "astype",
    "crc32", "crc32c", "adler32", "fletcher32", "jenkins_lookup3",
)  # fmt: skip
_WIDEST = 8  # bytes of a number that a filter may have changed the type of
_MOST_PARTS = 1 << 22  # chunks in a shard


def bounded(array: Any) -> Any:
    """The same array, to be read only. Raises ValueError, with the reason, where a codec is not known."""
    found = array.metadata
    if found.zarr_format == 2:
        filters = found.filters or ()
        widest = max(found.dtype.to_native_dtype().itemsize, _WIDEST if filters else 0)
        most = _with_room(math.prod(found.chunks) * widest)
        chain = [_numcodec(codec, most) for codec in (*filters, found.compressor) if codec is not None]
        count = len(filters)
        found = replace(found, filters=chain[:count] or None, compressor=chain[count] if chain[count:] else None)
    else:
        pixels = math.prod(array.shards or array.chunks)
        found = replace(found, codecs=[_codec(codec, pixels) for codec in found.codecs])
    return zarr.Array(zarr.AsyncArray(metadata=found, store_path=array.store_path))


def _with_room(size: int) -> int:
    """For checksums, and for what a compressor adds to data that another one has compressed."""
    return size + size // 64 + 1024


def _name(codec: Any) -> str:
    return str(codec.to_dict()["name"]).removeprefix("numcodecs.")


def _codec(codec: Any, pixels: int) -> Any:
    """A codec of version 3 in a chunk, or shard, of so many pixels."""
    if isinstance(codec, ShardingCodec):
        inner = math.prod(codec.chunk_shape)
        if not inner or pixels // inner > _MOST_PARTS:
            raise ValueError(f"declares shards of {pixels // max(1, inner):,} chunks; the most is {_MOST_PARTS:,}")
        return ShardingCodec(
            chunk_shape=codec.chunk_shape,
            codecs=[_codec(part, inner) for part in codec.codecs],
            index_codecs=[_codec(part, 2 * pixels // inner) for part in codec.index_codecs],
            index_location=codec.index_location,
        )
    if isinstance(codec, BytesCodec | TransposeCodec | Crc32cCodec) or _name(codec) in _HARMLESS:
        return codec
    if isinstance(codec, BytesBytesCodec):
        settings: Any = codec.to_dict().get("configuration", {})
        return _Bounded(_name(codec), settings)
    raise ValueError(f"is compressed by {_name(codec)}, which slir cannot read")


def _numcodec(codec: Any, most: int) -> Any:
    """A codec of version 2."""
    return codec if codec.codec_id in _HARMLESS else _BoundedNumcodec(codec.codec_id, codec.get_config(), most)


@dataclass(frozen=True)
class _Bounded(BytesBytesCodec):
    name: str
    settings: dict[str, Any]
    is_fixed_size = False

    async def _decode_single(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        most = _with_room(math.prod(chunk_spec.shape) * chunk_spec.dtype.to_native_dtype().itemsize)
        raw = await asyncio.to_thread(unpacked, self.name, chunk_bytes.to_bytes(), most, self.settings)
        return chunk_spec.prototype.buffer.from_bytes(raw)

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: Any) -> int:
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "configuration": self.settings}


class _BoundedNumcodec(Codec):
    codec_id = "slir"

    def __init__(self, name: str, settings: dict[str, Any], most: int):
        self._name, self._settings, self._most = name, settings, most

    def encode(self, buf: Any) -> Any:
        raise NotImplementedError

    def decode(self, buf: Any, out: Any = None) -> bytes:
        return unpacked(self._name, bytes(memoryview(buf).cast("B")), self._most, self._settings)
