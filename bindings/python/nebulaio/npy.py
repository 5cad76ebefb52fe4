"""NumPy's .npy format: a header in front of the array's own memory. Only this module and its callers need numpy."""

from __future__ import annotations

import ast
import io
from typing import Any

MAGIC = b"\x93NUMPY"
HEADER_BYTES_MAX = 1 << 20  # a structured type may have many fields


def header_bytes(start: bytes) -> int:
    """The header's length, from the first 12 bytes of the object."""
    if start[:6] != MAGIC or len(start) < 10:
        raise ValueError("the object is not a .npy file")
    if start[6] == 1:
        return 10 + int.from_bytes(start[8:10], "little")
    if start[6] not in (2, 3) or len(start) < 12:
        raise ValueError(f"a .npy file of version {start[6]} is not known")
    length = 12 + int.from_bytes(start[8:12], "little")
    if length > HEADER_BYTES_MAX:
        raise ValueError("the .npy header is longer than any real one")
    return length


def parse(header: bytes) -> tuple[Any, tuple[int, ...], bool]:
    """The array's dtype, shape, and whether it is in Fortran order."""
    import numpy

    text = header[10 if header[6] == 1 else 12:].decode("utf-8" if header[6] == 3 else "latin-1")
    try:
        fields = ast.literal_eval(text)
        descr, fortran, shape = fields["descr"], fields["fortran_order"], fields["shape"]
        dtype = numpy.lib.format.descr_to_dtype(descr)
    except (SyntaxError, ValueError, KeyError, TypeError) as error:
        raise ValueError("the .npy header is malformed") from error
    if not isinstance(fortran, bool) or not isinstance(shape, tuple) or \
            not all(isinstance(length, int) and length >= 0 for length in shape):
        raise ValueError("the .npy header is malformed")
    if dtype.hasobject:
        raise ValueError("the array holds Python objects: they are not loaded from an object store")
    return dtype, shape, fortran


def make(array: Any) -> bytes:
    """The header of an array whose memory is contiguous."""
    import numpy

    if array.dtype.hasobject:
        raise ValueError("an array of Python objects has no memory of its own to store")
    fields = numpy.lib.format.header_data_from_array_1_0(array)
    header = io.BytesIO()
    try:
        numpy.lib.format.write_array_header_1_0(header, fields)
    except ValueError:
        header = io.BytesIO()
        numpy.lib.format.write_array_header_2_0(header, fields)
    return header.getvalue()


def memory(array: Any) -> Any:
    """The array's bytes in memory order, as an array of uint8 over the same memory."""
    import numpy

    order = "C" if array.flags.c_contiguous else "F"
    if not array.flags.c_contiguous and not array.flags.f_contiguous:
        raise ValueError("the array is not contiguous")
    return array.reshape(-1, order=order).view(numpy.uint8)
