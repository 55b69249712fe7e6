"""Scalars of TensorBoard event files, read without TensorBoard.

An event file is a sequence of records: length (uint64), its checksum (4 bytes), the data, its checksum (4 bytes), little-endian.
The data is the protocol buffer ``Event``; four of its fields matter here, and a field is skipped by its wire type alone. The
layout is that of TensorFlow's ``record_writer``, ``event.proto``, ``summary.proto`` and ``tensor.proto``. Checksums aren't
verified: a record that was cut short ends the file, as for a run that is still being written.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from isentrope.errors import LogError

PATTERN = "*tfevents*"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_START = 1
"""``SessionLog.START``: a writer that goes on at a step, so what came after it before is void."""
_TENSOR_FORMATS = {1: "f", 2: "d", 3: "i", 9: "q"}
"""``DataType`` -> struct format, for scalars kept as ``tensor_content``."""


def read_scalars(folder: Path) -> list[dict[str, Any]]:
    """The scalars of a folder's event files, in the order they were written: a row ``{"step", tag}`` each.

    Raises:
        LogError: files below more than one folder (that is several runs), or no scalars.
    """
    files = [folder] if folder.is_file() else sorted(folder.rglob(PATTERN))
    folders = sorted({file.parent for file in files})
    if len(folders) > 1:
        raise LogError(f"{folder} holds several runs; give one of {', '.join(str(each) for each in folders[:8])}")
    rows: list[dict[str, Any]] = []
    for file in files:  # their names begin with the time they were made at
        for step, session, scalars in _events(file.read_bytes()):
            if session == _START:
                rows = [row for row in rows if row["step"] < step]
            rows += [{"step": step, tag: value} for tag, value in scalars.items()]
    if not rows:
        raise LogError(f"{folder}: the event files hold no scalars")
    return rows


def _events(data: bytes) -> Iterator[tuple[int, int | None, dict[str, float]]]:
    """Step, session status and scalars of each event."""
    at = 0
    while at + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        record = data[at + 12 : at + 12 + length]
        if len(record) < length:
            return
        at += 16 + length
        try:
            yield _event(record)
        except (IndexError, struct.error, UnicodeDecodeError) as error:
            raise LogError(f"damaged event file: no event at byte {at - 16 - length} ({error})") from error


def _event(record: bytes) -> tuple[int, int | None, dict[str, float]]:
    step, session, scalars = 0, None, {}
    for number, value in _fields(record):
        if number == 2:
            step = value
        elif number == 5:
            for inner, summary in _fields(value):
                if inner == 1 and (scalar := _scalar(summary)) is not None:
                    scalars[scalar[0]] = scalar[1]
        elif number == 7:
            session = dict(_fields(value)).get(1)
    return step, session, scalars


def _scalar(summary: bytes) -> tuple[str, float] | None:
    """Tag and value of a ``Summary.Value``; None for text, images and histograms."""
    fields = dict(_fields(summary))
    tag = fields.get(1, b"").decode()
    if 2 in fields:
        return tag, struct.unpack("<f", fields[2])[0]
    if 8 not in fields:
        return None
    tensor = dict(_fields(fields[8]))
    for number, form in ((5, "f"), (6, "d")):  # float_val, double_val: packed
        if number in tensor and len(tensor[number]) == struct.calcsize(form):
            return tag, struct.unpack(f"<{form}", tensor[number])[0]
    form = _TENSOR_FORMATS.get(tensor.get(1, 0), "")
    content = tensor.get(4, b"")
    if form and isinstance(content, bytes) and len(content) == struct.calcsize(form):
        return tag, float(struct.unpack(f"<{form}", content)[0])
    return None


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Field numbers and raw values of a protocol buffer."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if wire == _BYTES:
            size, at = _varint(data, at)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise IndexError(f"wire type {wire}")
        if at + size > len(data):
            raise IndexError("a field is cut short")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            # Negative int64 come as two's complement; steps are never negative in practice.
            return value - (1 << 64) if value >= 1 << 63 else value, at
