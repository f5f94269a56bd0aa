"""Invalid adapter_model.safetensors files: each case is made from a valid one, with what the error must name."""

import gzip
import io
import json
import pickle
import struct
import tarfile
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.attacks.adapter_files import (
    Change,
    Header,
    added,
    entry,
    header,
    header_text,
    named,
    packed,
    poked,
    removed,
    renamed,
    reshaped,
    tensor_file,
    tensors,
)
from tests.attacks.malformed_configs import Case, zipped

FILE = "adapter_model.safetensors"
A = "layers.0.self_attn.q_proj.lora_A.weight"
B = "layers.0.self_attn.q_proj.lora_B.weight"
STEM = "base_model.model.model.layers.0.self_attn.q_proj"


def replaced(raw: bytes, words: str = "") -> Case:
    return Case(tensor_file(lambda _: raw), FILE, words)


def tarred(raw: bytes) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        info = tarfile.TarInfo("../../etc/adapter_model.safetensors")
        info.size = len(raw)
        archive.addfile(info, io.BytesIO(raw))
    return file.getvalue()


def npz(_: bytes) -> bytes:
    file = io.BytesIO()
    np.savez(file, a=np.ones((4, 32), np.float32))
    return file.getvalue()


class _Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return print, ("a pickle was read",)


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 123456\n"
DISGUISES: dict[str, Case] = {
    "a pickle": replaced(pickle.dumps(_Evil()), "is a pickle"),
    "a pickle behind a length": replaced(struct.pack("<Q", 64) + pickle.dumps(_Evil()).ljust(64, b"\0")),
    "torch.save": replaced(zipped("archive/data.pkl", pickle.dumps(_Evil())), "is a zip"),
    "a zip of it": Case(tensor_file(lambda raw: zipped(FILE, raw)), FILE),
    "a zip bomb": replaced(zipped(FILE, bytes(64 << 20))),
    "gzip": Case(tensor_file(gzip.compress), FILE, "uncompressed"),
    "a gzip bomb": replaced(gzip.compress(bytes(64 << 20))),
    "a tar that traverses": Case(tensor_file(tarred), FILE),
    "npz": Case(tensor_file(npz), FILE),
    "a pointer of git-lfs": replaced(POINTER, "git lfs pull"),
    "HTML": replaced(b"<!doctype html><html><body>Sign in</body></html>", "is a web page"),
    "GGUF": replaced(b"GGUF" + bytes(200)),
    "HDF5": replaced(b"\x89HDF\r\n\x1a\n" + bytes(200)),
    "a program": replaced(b"\x7fELF" + bytes(200)),
    "the config": Case(lambda files: type(files)(files.config, files.config), FILE, "is JSON"),
}


def cut(length: Callable[[bytes], int]) -> Case:
    return Case(tensor_file(lambda raw: raw[: length(raw)]), FILE)


def declared(length: int) -> Case:
    """Return a file whose first eight bytes declare a header of this length."""
    return Case(tensor_file(lambda raw: struct.pack("<Q", length) + raw[8:]), FILE)


SIZES: dict[str, Case] = {
    "empty": replaced(b"", "too short"),
    "seven bytes": replaced(bytes(7), "too short"),
    "a header of no bytes": replaced(bytes(8), "no JSON object"),
    "cut in its header": cut(lambda raw: 100),
    "cut after its header": cut(lambda raw: 8 + struct.unpack("<Q", raw[:8])[0]),
    "cut in half": cut(lambda raw: len(raw) * 2 // 3),
    "cut by one byte": cut(lambda raw: len(raw) - 1),
    "one byte more": Case(tensor_file(lambda raw: raw + b"\0"), FILE, "its tensors end at"),
    "a megabyte more": Case(tensor_file(lambda raw: raw + bytes(1 << 20)), FILE, "its tensors end at"),
    "twice itself": Case(tensor_file(lambda raw: raw + raw), FILE, "its tensors end at"),
    **{f"a header of {length} bytes": declared(length) for length in (0, 1, 1 << 31, 1 << 40, 1 << 63, (1 << 64) - 1)},
    "a header one byte longer": Case(
        tensor_file(lambda raw: struct.pack("<Q", struct.unpack("<Q", raw[:8])[0] + 1) + raw[8:]), FILE
    ),
}


def bomb(raw: bytes, words: str = "") -> Case:
    return Case(tensor_file(lambda _: packed(raw, b"")), FILE, words)


EMPTY = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
HEADERS: dict[str, Case] = {
    "not JSON": bomb(b"{nonsense}", "not valid JSON"),
    "a list": bomb(b"[]"),
    "a blank first": Case(header_text(lambda raw: b" " + raw), FILE),
    "NUL behind it": Case(header_text(lambda raw: raw.rstrip() + b"\0"), FILE, "not valid JSON"),
    "two objects": Case(header_text(lambda raw: raw.rstrip() + b"{}"), FILE, "not valid JSON"),
    "not UTF-8": Case(header_text(lambda raw: raw.replace(b"q_proj", b"q\xffproj", 1)), FILE, "UTF-8"),
    "half a surrogate": Case(header_text(lambda raw: raw.replace(b"q_proj", b"q\\ud800", 1)), FILE, "UTF-8"),
    "no tensors": bomb(b"{}", "holds no tensors"),
    "metadata alone": bomb(b'{"__metadata__": {"format": "pt"}}', "holds no tensors"),
    "metadata in a list": Case(header(lambda h: {**h, "__metadata__": []}), "__metadata__", "strings to strings"),
    "metadata of numbers": Case(header(lambda h: {**h, "__metadata__": {"a": 1}}), "__metadata__"),
    "metadata twice": Case(header_text(lambda raw: b'{"__metadata__": {}, ' + raw[1:]), FILE, "twice"),
    "a tensor twice": Case(
        header_text(
            lambda raw: b'{"%s": %s, ' % (f"{STEM}.lora_A.weight".encode(), json.dumps(EMPTY).encode()) + raw[1:]
        ),
        FILE,
        "twice",
    ),
    "a member twice": Case(
        header_text(lambda raw: raw.replace(b'"dtype":', b'"dtype":"F32","dtype":', 1)), FILE, "twice"
    ),
    "deep lists": bomb(b'{"a": ' + b"[" * 500_000, "is nested too deeply"),
    "deep objects": bomb(b'{"a": ' * 300_000, "is nested too deeply"),
    "many numbers": bomb(b'{"a": [' + b"1," * 4_000_000 + b"1]}", "too many values"),
    "many strings": bomb(b'{"a": [' + b'"ab",' * 1_500_000 + b'"ab"]}', "too many values"),
    "many quotes": bomb(b'{"' + b'\\"' * 4_000_000),
    "many tensors": bomb(json.dumps({str(n): EMPTY for n in range(50_000)}).encode(), "tensors; at most"),
    "a number without end": Case(
        header_text(lambda raw: raw.replace(b'"shape":[4', b'"shape":[4' + b"0" * 100_000, 1)), FILE, "20 digits"
    ),
    "NaN": Case(header_text(lambda raw: raw.replace(b'"shape":[4', b'"shape":[NaN', 1)), FILE, "NaN"),
    "thirteen megabytes": bomb(b'{"a": "' + b"x" * (13 << 20) + b'"}', "at most"),
    "an entry of null": Case(header(lambda h: {**h, named(h, A): None}), A, "must have exactly"),
    "an entry in a list": Case(header(lambda h: {**h, named(h, A): ["F32", [4, 32], [0, 512]]}), A),
    "strides": Case(entry(A, strides=[32, 1]), A, "must have exactly"),
    "no dtype": Case(entry(A, dtype=None), A, "must have exactly"),
    "no shape": Case(entry(A, shape=None), A, "must have exactly"),
    "no offsets": Case(entry(A, data_offsets=None), A, "must have exactly"),
    "a dtype in a list": Case(entry(A, dtype=["F32"]), A, "is stored as"),
}

DTYPES = (
    "F64",
    "I64",
    "I32",
    "I16",
    "I8",
    "U8",
    "BOOL",
    "F8_E4M3",
    "F8_E5M2",
    "F4",
    "C64",
    "f32",
    "float32",
    "",
    "F32\0",
)
HEADERS |= {f"dtype {dtype!r}": Case(entry(A, dtype=dtype), A, "save it as one of F32, F16, BF16") for dtype in DTYPES}
SHAPES: tuple[Any, ...] = (
    4, "4", [-4, -32], [4.0, 32.0], [True, 128], ["4", 32], [4, 32, 1], [128], [32, 4], [4, 16], [4, 64], [],
    [1 << 62, 4], [1 << 32, 1 << 32], [10**19, 1], [4] + [1] * 9, {"0": 4},
)  # fmt: skip
HEADERS |= {f"shape {shape!r}": Case(entry(A, shape=shape), A) for shape in SHAPES}
HEADERS["shape of shapes"] = Case(entry(A, shape=[[4, 32]]), FILE, "is nested too deeply")
OFFSETS: tuple[Any, ...] = (
    512, "0", [], [0], [0, 512, 512], [512, 0], [-512, 0], [0, 511], [0, 513], [4, 516], [1, 513], [0.0, 512.0],
    [1 << 40, (1 << 40) + 512], [True, 512], [0, 1 << 63], [None, 512],
)  # fmt: skip
HEADERS |= {f"offsets {offsets!r}": Case(entry(A, data_offsets=offsets), "weight") for offsets in OFFSETS}


def _shared(h: Header) -> Header:
    return {**h, named(h, "v_proj.lora_A.weight"): h[named(h, A)]}


def _shifted(h: Header) -> Header:
    """Move all tensors by four bytes, leaving a hole."""
    return {
        name: value if name == "__metadata__" else {**value, "data_offsets": [at + 4 for at in value["data_offsets"]]}
        for name, value in h.items()
    }


HEADERS |= {
    "two tensors of the same bytes": Case(header(_shared), "weight", "overlaps"),
    "bytes before the first tensor": Case(
        lambda files: type(files)(files.config, packed(_shifted(files.header), bytes(4) + files.body)),
        "weight",
        "a gap",
    ),
    "every tensor at the start": Case(
        header(
            lambda h: {
                k: v if k == "__metadata__" else {**v, "data_offsets": [0, v["data_offsets"][1] - v["data_offsets"][0]]}
                for k, v in h.items()
            }
        ),
        "weight",
        "overlaps",
    ),
}


def _stemless(name: str) -> str:
    return name.removeprefix("base_model.model.")


MODEL = "base_model.model.model"
NAMES: dict[str, Case] = {
    "without the prefix": Case(renamed(A, _stemless), A, "is missing"),
    "another prefix": Case(renamed(A, lambda name: "module." + name), A, "is missing"),
    "with the adapter's name": Case(
        renamed(A, lambda name: name.replace(".weight", ".default.weight")), A, "is missing"
    ),
    "in capitals": Case(renamed(A, str.upper), A, "is missing"),
    "A called B": Case(renamed(A, lambda name: name.replace("lora_A", "lora_C")), A, "is missing"),
    "a layer too far": Case(renamed(A, lambda name: name.replace("layers.0", "layers.99")), A, "is missing"),
    "NUL in it": Case(added(f"{STEM}.lora_A.weight\0", [1]), r"\x00"),
    "control characters": Case(added("\x1b[31m", [1]), r"\x1b[31m"),
    "right to left": Case(added("\u202egnp", [1]), r"\u202egnp"),
    "a path": Case(added("../../../etc/passwd", [1]), "../../../etc/passwd", "does not begin with"),
    "without end": Case(added("x" * 100_000, [1]), "…", "does not begin with"),
    "empty": Case(added("", [1]), FILE + ": ", "does not begin with"),
    "a module that is not there": Case(added(f"{MODEL}.layers.7.mlp.w1.lora_A.weight", [4, 32]), "w1.lora_A.weight"),
    "a target that was not chosen": Case(
        added(STEM.replace("q_", "k_") + ".lora_A.weight", [4, 32]), "k_proj.lora_A.weight", "target_modules"
    ),
    "a whole weight": Case(added(f"{STEM}.weight", [32, 32]), "q_proj.weight", "modules_to_save"),
    "a base layer": Case(added(f"{STEM}.base_layer.weight", [32, 32]), "base_layer.weight", "copy of the base"),
    "a bias": Case(added(f"{STEM}.bias", [32]), "q_proj.bias", "bias of the base model"),
    "a bias of B": Case(added(f"{STEM}.lora_B.bias", [32]), "lora_B.bias", "lora_bias is false"),
    "a magnitude": Case(added(f"{STEM}.lora_magnitude_vector", [32]), "lora_magnitude_vector", "use_dora is false"),
    "KaSA's": Case(added(f"{STEM}.lora_diag", [4]), "lora_diag", "KaSA"),
    "an embedding's": Case(added(f"{MODEL}.embed_tokens.lora_embedding_A", [4, 96]), "lora_embedding_A", "embedding"),
    "trained tokens": Case(added(f"{MODEL}.embed_tokens.token_adapter.trainable_tokens_delta", [1, 32]), "delta"),
    "an expert's": Case(
        added(f"{MODEL}.layers.1.mlp.experts.lora_A.weight", [24, 32]), "experts.lora_A.weight", "mixture"
    ),
    "an optimiser's": Case(added("optimizer.state.0.exp_avg", [4]), "exp_avg", "does not begin with"),
}

MISSING: dict[str, Case] = {
    f"without {end} ({kind})": Case(removed(end), end, "is missing", kind)
    for end, kind in (
        (A, "plain"),
        (B, "plain"),
        (A, "bfloat16"),
        ("v_proj.lora_B.bias", "biased"),
        ("q_proj.lora_magnitude_vector", "dora"),
        ("lm_head.weight", "saved"),
        ("model.norm.weight", "saved"),
        ("lora_embedding_A", "embedding"),
        ("lora_embedding_B", "embedding"),
        ("trainable_tokens_delta", "tokens"),
        ("experts.lora_A.weight", "experts"),
        ("base_layer.lora_B.weight", "experts"),
        ("lora_A.weight", "alora"),
        ("o_proj.lora_A.weight", "blocks"),
    )
}

WRONG_SHAPES: dict[str, Case] = {
    f"{end} as {shape} ({kind})": Case(reshaped(end, shape), end, "has the shape", kind)
    for end, shape, kind in (
        (A, [5, 32], "plain"),
        (A, [4, 33], "plain"),
        (A, [32, 4], "plain"),
        (A, [4, 32, 1], "plain"),
        (A, [128], "plain"),
        (A, [0, 32], "plain"),
        (A, [], "plain"),
        (B, [4, 32], "plain"),
        (B, [31, 4], "plain"),
        (B, [0], "plain"),
        ("v_proj.lora_A.weight", [4, 32], "rank-stabilised"),
        ("lora_B.bias", [33], "biased"),
        ("lora_B.bias", [1, 32], "biased"),
        ("lora_magnitude_vector", [1, 32], "dora"),
        ("lora_magnitude_vector", [31], "dora"),
        ("lm_head.weight", [97, 32], "saved"),
        ("lm_head.weight", [32, 96], "saved"),
        ("model.norm.weight", [33], "saved"),
        ("lora_embedding_A", [4, 97], "embedding"),
        ("lora_embedding_B", [4, 32], "embedding"),
        ("trainable_tokens_delta", [3, 32], "tokens"),
        ("trainable_tokens_delta", [2, 31], "tokens"),
        ("experts.lora_A.weight", [4, 32], "experts"),
        ("experts.lora_B.weight", [32, 4], "experts"),
        ("o_proj.lora_A.weight", [4, 32], "blocks"),
        ("q_proj.lora_B.weight", [32, 4], "blocks"),
    )
}


NOT_FINITE = {
    "F32": {"NaN": 0x7FC0_0000, "a signalling NaN": 0x7F80_0001, "-NaN": 0xFFFF_FFFF, "inf": 0x7F80_0000,
            "-inf": 0xFF80_0000},
    "F16": {"NaN": 0x7E00, "a signalling NaN": 0x7C01, "inf": 0x7C00, "-inf": 0xFC00},
    "BF16": {"NaN": 0x7FC0, "a signalling NaN": 0x7F81, "inf": 0x7F80, "-inf": 0xFF80},
}  # fmt: skip


def _not_finite() -> dict[str, Case]:
    cases = {}
    for kind, dtype in (("plain", "F32"), ("float16", "F16"), ("bfloat16", "BF16")):
        for what, bits in NOT_FINITE[dtype].items():
            cases[f"{what} in {dtype}"] = Case(poked(A, bits), A, "NaN or infinity", kind)
    for end, kind in (
        ("lora_B.bias", "biased"),
        ("lora_magnitude_vector", "dora"),
        ("lm_head.weight", "saved"),
        ("model.norm.weight", "saved"),
        ("lora_embedding_A", "embedding"),
        ("trainable_tokens_delta", "tokens"),
        ("experts.lora_A.weight", "experts"),
        ("q_proj.lora_B.weight", "blocks"),
        ("lora_B.weight", "alora"),
    ):
        cases[f"NaN in {end} ({kind})"] = Case(poked(end, NOT_FINITE["F32"]["NaN"], at=-1), end, "NaN or inf", kind)
    return cases


def filled(end: str, value: float) -> Change:
    """Fill the tensors whose names end like this with one value."""

    def change(name: str, raw: bytes, entry: Header) -> tuple[bytes, Header]:
        return (struct.pack("<f", value) * (len(raw) // 4), entry) if name.endswith(end) else (raw, entry)

    return tensors(change)


HUGE = 0x7F7F_FFFF  # the largest finite number of float32
VALUES: dict[str, Case] = _not_finite() | {
    "B that overflows once scaled": Case(poked(B, HUGE), B, "with the scaling 2 in it"),
    "B·A that overflows": Case(
        lambda files: filled("lora_A.weight", 1e20)(filled("lora_B.weight", 1e20)(files)), B, "a product of up to"
    ),
    "A that makes B·A overflow": Case(poked(A, HUGE), B, "a product of up to"),
    "experts that overflow": Case(
        filled("lora_A.weight", 3e38), "lora_B.weight", "a product of up to", "experts"
    ),
    "an embedding that overflows": Case(filled("lora_embedding_A", 3e38), "lora_embedding_B", "product", "embedding"),
}  # fmt: skip
