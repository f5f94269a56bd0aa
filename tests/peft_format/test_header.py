"""The safetensors header: valid ones read as safetensors reads them, invalid ones are always rejected."""

import json
import random
import struct
import tracemalloc
from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError
from safetensors.numpy import load, save

from loragate.peft_format.errors import AdapterRejected
from loragate.peft_format.safetensors.header import MAX_TENSORS, Header, read_header

A = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}
B = {"dtype": "F16", "shape": [4], "data_offsets": [16, 24]}


def pack(header: object, data: int = 24) -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + bytes(data)


def read(raw: bytes) -> Header:
    return read_header(BytesIO(raw), len(raw))


def test_a_valid_header_is_read_with_absolute_offsets() -> None:
    raw = pack({"b": B, "__metadata__": {"format": "pt"}, "a": A})
    header = read(raw)

    start = len(raw) - 24
    assert list(header.tensors) == ["a", "b"]
    assert (header.tensors["b"].begin, header.tensors["b"].end) == (start + 16, start + 24)
    assert header.tensors["b"].shape == (4,)
    assert header.metadata == {"format": "pt"}
    assert header.size == len(raw)


@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8"), min_size=1).filter(lambda name: name != "__metadata__"),
        st.tuples(st.sampled_from([np.float32, np.float16]), st.lists(st.integers(0, 4), max_size=4)),
        min_size=1,
        max_size=6,
    )
)
def test_files_of_safetensors_are_read_byte_for_byte(shapes: dict[str, Any]) -> None:
    arrays = {name: np.random.default_rng(0).random(shape).astype(dtype) for name, (dtype, shape) in shapes.items()}
    raw = save(arrays)
    header = read(raw)

    assert header.tensors.keys() == arrays.keys()
    for name, array in arrays.items():
        spec = header.tensors[name]
        assert spec.shape == array.shape
        assert raw[spec.begin : spec.end] == array.tobytes()


MALFORMED: dict[str, bytes] = {
    "empty": b"",
    "short prefix": b"\x01\x00\x00",
    "no header": struct.pack("<Q", 0),
    "length past the end": struct.pack("<Q", 100) + b"{}",
    "length of 2^63": struct.pack("<Q", 1 << 63) + b"{}",
    "length of 2^64-1": struct.pack("<Q", (1 << 64) - 1) + b"{}",
    "length over the cap": struct.pack("<Q", (8 << 20) + 1) + b"{" + b" " * (8 << 20),
    "zip": b"PK\x03\x04" + bytes(100),
    "pickle": b"\x80\x02}q\x00." + bytes(100),
    "not JSON": pack(b"{nonsense}"),
    "not an object": pack([A]),
    "leading blank": pack(b" " + json.dumps({"a": A, "b": B}).encode()),
    "not UTF-8": pack(b'{"\xff": 1}'),
    "NUL padding": pack(json.dumps({"a": A, "b": B}).encode() + b"\x00"),
    "trailing value": pack(json.dumps({"a": A, "b": B}).encode() + b"{}"),
    "no tensors": pack({}, data=0),
    "only metadata": pack({"__metadata__": {"format": "pt"}}, data=0),
    "metadata not an object": pack({"__metadata__": "pt", "a": A, "b": B}),
    "metadata not of strings": pack({"__metadata__": {"format": 1}, "a": A, "b": B}),
    "duplicate tensor": pack(b'{"a": %s, "a": %s}' % ((json.dumps(A).encode(),) * 2), data=16),
    "duplicate key in a tensor": pack(
        b'{"a": {"dtype": "F32", "shape": [1], "shape": [4], "data_offsets": [0, 16]}}', data=16
    ),
    "half a surrogate": pack(b'{"\\ud800": %s}' % json.dumps(A).encode(), data=16),
    "entry not an object": pack({"a": [0, 16]}, data=16),
    "missing dtype": pack({"a": {"shape": [4], "data_offsets": [0, 16]}}, data=16),
    "unknown key": pack({"a": {**A, "strides": [1]}}, data=16),
    "F64": pack({"a": {**A, "dtype": "F64", "shape": [2]}}, data=16),
    "fp8": pack({"a": {**A, "dtype": "F8_E4M3", "shape": [16]}}, data=16),
    "I32": pack({"a": {**A, "dtype": "I32", "shape": [4]}}, data=16),
    "unknown dtype": pack({"a": {**A, "dtype": "F128"}}, data=16),
    "dtype not a string": pack({"a": {**A, "dtype": ["F32"]}}, data=16),
    "shape not a list": pack({"a": {**A, "shape": 4}}, data=16),
    "negative dimension": pack({"a": {**A, "shape": [-2, -2]}}, data=16),
    "float dimension": pack({"a": {**A, "shape": [2.0, 2.0]}}, data=16),
    "boolean dimension": pack({"a": {**A, "shape": [True, 4]}}, data=16),
    "null dimension": pack({"a": {**A, "shape": [None, 4]}}, data=16),
    "NaN dimension": pack(b'{"a": {"dtype": "F32", "shape": [NaN], "data_offsets": [0, 16]}}', data=16),
    "too many dimensions": pack({"a": {**A, "shape": [1] * 9, "data_offsets": [0, 4]}}, data=4),
    "dimensions that overflow": pack({"a": {**A, "shape": [1 << 62, 4]}}, data=16),
    "number of a megabyte": pack(b'{"a": {"dtype": "F32", "shape": [1%s]}}' % (b"0" * 1_000_000)),
    "shape smaller than its bytes": pack({"a": {**A, "shape": [3]}}, data=16),
    "shape larger than its bytes": pack({"a": {**A, "shape": [5]}}, data=16),
    "offsets not a list": pack({"a": {**A, "data_offsets": 16}}, data=16),
    "one offset": pack({"a": {**A, "data_offsets": [16]}}, data=16),
    "three offsets": pack({"a": {**A, "data_offsets": [0, 16, 16]}}, data=16),
    "offsets in disorder": pack({"a": {**A, "data_offsets": [16, 0]}}, data=16),
    "negative offset": pack({"a": {**A, "data_offsets": [-16, 0]}}, data=16),
    "offsets past the end": pack({"a": {**A, "data_offsets": [16, 32]}}, data=16),
    "same bytes twice": pack({"a": A, "b": A}, data=16),
    "overlap": pack({"a": A, "b": {**A, "data_offsets": [8, 24]}}),
    "gap": pack({"a": A, "b": {**B, "data_offsets": [20, 28]}}, data=28),
    "gap at the start": pack({"a": {**A, "data_offsets": [8, 24]}}),
    "bytes after the last tensor": pack({"a": A, "b": B}, data=25),
    "bytes missing": pack({"a": A, "b": B}, data=23),
    "deep lists": pack(b'{"a": ' + b"[" * 1_000_000),
    "deep, but small": pack(b'{"a": ' + b"[" * 100_000),
    "deep objects": pack(b'{"a": ' * 1_000_000),
    "many lists": pack(b'{"a": [' + b"[]," * 2_000_000 + b"[]]}"),
    "many numbers": pack(b'{"a": [' + b"1," * 4_000_000 + b"1]}"),
    "many strings": pack(b'{"a": [' + b'"ab",' * 1_500_000 + b'"ab"]}'),
    "many quotes": pack(b'{"' + b'\\"' * 4_000_000),
    "many tensors": pack(
        {f"{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(MAX_TENSORS + 1)}, 0
    ),
}


@pytest.mark.parametrize("raw", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_header_is_rejected_in_bounded_memory(raw: bytes) -> None:
    file = BytesIO(raw)
    tracemalloc.start()
    try:
        with pytest.raises(AdapterRejected) as caught:
            read_header(file, len(raw))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 96 << 20
    assert caught.value.param.startswith("adapter_model.safetensors")
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 600


@pytest.mark.parametrize("lie", [-1, 1, 1 << 40])
def test_a_size_that_differs_from_the_files_is_rejected(lie: int) -> None:
    raw = pack({"a": A, "b": B})
    with pytest.raises(AdapterRejected):
        read_header(BytesIO(raw), len(raw) + lie)


def _flip(raw: bytearray, rng: random.Random) -> None:
    raw[rng.randrange(min(len(raw), 300))] = rng.randrange(256)


def _cut(raw: bytearray, rng: random.Random) -> None:
    del raw[rng.randrange(len(raw)) :]


def _repeat(raw: bytearray, rng: random.Random) -> None:
    begin = rng.randrange(len(raw))
    raw[begin:begin] = raw[begin : begin + rng.randrange(1, 40)]


def _swap_digits(raw: bytearray, rng: random.Random) -> None:
    digits = [at for at, byte in enumerate(raw[:300]) if 48 <= byte < 58]
    raw[rng.choice(digits or [0])] = rng.choice(b"0123456789-.eE")


MUTATIONS: list[Callable[[bytearray, random.Random], None]] = [_flip, _cut, _repeat, _swap_digits]


@settings(max_examples=800, deadline=None)
@given(st.randoms(use_true_random=False), st.lists(st.sampled_from(MUTATIONS), min_size=1, max_size=4))
def test_a_damaged_file_is_rejected_or_read_as_safetensors_reads_it(
    rng: random.Random, mutations: list[Callable[[bytearray, random.Random], None]]
) -> None:
    raw = bytearray(save({"a.lora_A": np.ones((2, 3), np.float32), "b": np.ones(5, np.float16)}, {"format": "pt"}))
    for mutate in mutations:
        if raw:
            mutate(raw, rng)
    damaged = bytes(raw)
    try:
        header = read(damaged)
    except AdapterRejected:
        return
    try:
        oracle = load(damaged)
    except SafetensorError as error:
        pytest.fail(f"accepted what safetensors refuses: {error}")
    for name, spec in header.tensors.items():
        assert oracle[name].shape == spec.shape
        if spec.dtype != "BF16":
            assert oracle[name].tobytes() == damaged[spec.begin : spec.end]
