"""The two checksums of Kafka's formats, as functions that compiled code calls by address.

CRC-32C (Castagnoli) covers a v2 batch from its attributes on; CRC-32 (IEEE) covers a v0 or v1 message from its magic
on. Both come from libraries that use the processor's own instructions: `google-crc32c`, whose C interface
(`crc32c_extend`) is public, and zlib. For batches of one record, a Python call for each batch would cost more than the
checksum itself. If a library does not export its symbol, its Python function is called back instead: slower, with the
same result.
"""

from __future__ import annotations

import ctypes
import zlib
from typing import Any

import google_crc32c

_CRC32C_TYPE = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t)
_CRC32_TYPE = ctypes.CFUNCTYPE(ctypes.c_ulong, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_uint)


def _crc32c_callback(crc: int, address: int, size: int) -> int:
    return int(google_crc32c.extend(crc, ctypes.string_at(address, size)))


def _crc32_callback(crc: int, address: int, size: int) -> int:
    return zlib.crc32(ctypes.string_at(address, size), crc)


def _symbol(module: Any, name: str, prototype: Any, fallback: Any) -> Any:
    try:
        library = ctypes.CDLL(module.__file__)
        function = ctypes.cast(getattr(library, name), prototype)
    except (AttributeError, OSError, TypeError):
        function = prototype(fallback)
    probe = ctypes.create_string_buffer(b"123456789", 9)
    expected = {"crc32c_extend": 0xE3069283, "crc32": 0xCBF43926}[name]
    if function(0, ctypes.addressof(probe), 9) != expected:
        function = prototype(fallback)
    return function


def _crc32c_module() -> Any:
    try:
        from google_crc32c import _crc32c
    except ImportError:
        return None
    return _crc32c


# Kept as long as the process lives: the kernels hold their addresses.
_CRC32C = _symbol(_crc32c_module(), "crc32c_extend", _CRC32C_TYPE, _crc32c_callback)
_CRC32 = _symbol(zlib, "crc32", _CRC32_TYPE, _crc32_callback)

CRC32C_ADDRESS: int = ctypes.cast(_CRC32C, ctypes.c_void_p).value or 0
CRC32_ADDRESS: int = ctypes.cast(_CRC32, ctypes.c_void_p).value or 0


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """Return the CRC-32C of `data`.

    Args:
        data: Any contiguous bytes.
    """
    return int(google_crc32c.value(bytes(data)))
