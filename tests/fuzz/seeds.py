"""Valid inputs of the fuzzed parsers, and what is often put into them."""

from loragate.v1 import training_pb2 as pb

_TENSORS = (
    b'"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"b":{"dtype":"F16","shape":[4],"data_offsets":[16,24]}'
)
_CONFIG = b'{"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 4, "lora_alpha": 16, "target_modules": ["q_proj"]'
_PREFERENCE = (
    b'{"input": {"messages": [{"role": "user", "content": "a"}]}, "preferred_output": [{"role": "assistant", '
    b'"content": "b"}], "non_preferred_output": [{"role": "assistant", "content": "c"}]}\n'
)
_TOOLS = (
    b'{"messages": [{"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function", '
    b'"function": {"name": "f", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "1", "content": "x"}], '
    b'"tools": []}\n'
)
_POST = b"POST /v1/x HTTP/1.1\r\nHost: a\r\n"
_PIPELINED = b"GET / HTTP/1.1\r\nHost: b\r\n\r\n"


def _training(**inputs: pb.Tensor) -> bytes:
    chunk = pb.Chunk(encoded_text=pb.EncodedText(tokens=bytes(8)))
    datum = pb.Datum(model_input=[chunk], loss_fn_inputs=inputs)
    request = pb.ForwardBackwardRequest(model_id="m", seq_id=1, data=[datum], loss_fn="cross_entropy")
    return request.SerializeToString()


_DENSE = pb.Tensor(dense=bytes(16), dtype=pb.DTYPE_INT64, shape=[2])
_SPARSE = pb.Tensor(
    dtype=pb.DTYPE_FLOAT32,
    shape=[2, 2],
    sparse_csr=pb.SparseCsr(
        values=bytes(4), crow_indices=b"".join(n.to_bytes(8, "little") for n in (0, 1, 1)), col_indices=bytes(8)
    ),
)

SEEDS: dict[str, tuple[bytes, ...]] = {
    "header": (
        b"{" + _TENSORS + b"}",
        b'{"__metadata__":{"format":"pt"},"a":{"dtype":"BF16","shape":[12],"data_offsets":[0,24]}}',
    ),
    "config": (
        _CONFIG + b"}",
        _CONFIG + b', "rank_pattern": {"q_proj": 2}, "modules_to_save": ["lm_head"], "use_dora": true}',
        _CONFIG + b', "layers_to_transform": [1], "layers_pattern": ["layers"], "bias": "none"}',
        _CONFIG + b', "trainable_token_indices": {"wte": [5]}, "target_parameters": ["experts.w1"]}',
        _CONFIG + b', "use_bdlora": {"nblocks": 2, "target_modules_bd_a": ["q_proj"]}}',
    ),
    "pattern": (b".*q_proj", b"(a|b)*c?", rb"^layers\.\d+\.[a-z_]+$", b"(?:x{1,3}){2}", rb"[^\W\d]+\b"),
    "lines": (
        b'{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n',
        b'{"prompt": "a", "completion": "b"}\n{"prompt": "c", "completion": "d"}\n',
        b'{"text": "a"}\n\n{"text": "b"}',
        _PREFERENCE,
        _TOOLS,
    ),
    "training": (_training(target_tokens=_DENSE), _training(target_tokens=_DENSE, weights=_SPARSE)),
    "http": (
        b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n",
        _POST + b"Content-Length: 5\r\n\r\nhello",
        _POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx: y\r\n\r\n",
        _POST + b"Connection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nhi" + _PIPELINED,
        b"GET /a HTTP/1.0\r\n\r\n" + _PIPELINED,
    ),
}

_JSON = (b'"', b"[", b"]", b"{", b"}", b",", b":", b"0", b"-1", b"1e309", b"null", b"true", rb"\u0000", rb"\ud800")
WORDS: dict[str, tuple[bytes, ...]] = {
    "header": (*_JSON, b"F32", b'"a":', b"9" * 20, b'"shape":[]'),
    "config": (*_JSON, b'"r": 4', b".*", b"9" * 30, b'"all-linear"', b"[1]"),
    "pattern": tuple(rb"( ) (?: | * +? {2,} {,3} [ ] ^ $ \ \b \1 . \Z (?= x{9}{9} [^ -".split()),
    "lines": (*_JSON, b"\n", b"\r\n", b"\xff", b"\xef\xbb\xbf", b"9" * 5000, b'"weight": 0', b"\xc2\x85"),
    "training": (b"\x00", b"\xff", b"\x08\x01", b"\xff\xff\xff\x7f", b"\x80\x80\x80\x80\x10", b"\x01" + bytes(7)),
    "http": (
        *(
            b"\r\n",
            b"\n",
            b"\r",
            b"\0",
            b" ",
            b"\t",
            b":",
            b"0",
            b"-1",
            b"+5",
            b"0x5",
            b"chunked",
            b"HTTP/2.0",
            b"\xff",
        ),
        *(b"Content-Length: 5\r\n", b"Transfer-Encoding: ", b"Host: b\r\n", b"Expect: 100-continue\r\n", b"CONNECT"),
        *(b";a=b", b"identity", b"x: y\r\n z\r\n", b"Upgrade: websocket\r\n"),
    ),
}
