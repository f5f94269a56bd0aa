"""From the payloads of commands to what the trainer computes, and from its results to the payloads of responses."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
from google.protobuf.message import DecodeError

from loragate.trainer.datum import Datum
from loragate.trainer.errors import TrainingRejected
from loragate.trainer.trainer import ForwardBackward, ForwardBackwardResult
from loragate.v1 import training_pb2 as pb

_MAX_DATA = 4096  # of one request
_MAX_CELLS = 1 << 26  # of one tensor, and of all sparse ones together: a few bytes stand for any number of zeros
_DTYPES: dict[pb.DType, np.dtype[Any]] = {
    pb.DTYPE_FLOAT32: np.dtype("<f4"),
    pb.DTYPE_INT64: np.dtype("<i8"),
    pb.DTYPE_INT32: np.dtype("<i4"),
}
_INDEX = np.dtype("<i8")


def forward_backward(run_id: str, payload: bytes) -> ForwardBackward:
    """Return the computation that a payload asks for. Raise TrainingRejected, which names the field."""
    try:
        request = pb.ForwardBackwardRequest.FromString(payload)
    except DecodeError:
        raise TrainingRejected("The body is not a ForwardBackwardRequest.") from None
    if not request.data:
        raise TrainingRejected("data: it is empty.")
    if len(request.data) > _MAX_DATA:
        raise TrainingRejected(f"data: {len(request.data)} sequences are too many for one request; {_MAX_DATA} may be.")
    _check_sparse(request)
    return ForwardBackward(
        run_id=run_id,
        data=tuple(_datum(each, f"data[{number}]") for number, each in enumerate(request.data)),
        loss_fn=request.loss_fn,
        loss_config=_loss_config(request),
        forward_only=request.forward_only,
    )


def _check_sparse(request: pb.ForwardBackwardRequest) -> None:
    cells = 0
    for number, datum in enumerate(request.data):
        for name, tensor in datum.loss_fn_inputs.items():
            if tensor.WhichOneof("encoding") == "sparse_csr":
                cells += math.prod(max(0, size) for size in tensor.shape)
            if cells > _MAX_CELLS:
                where = f"data[{number}].loss_fn_inputs.{name[:64]}"
                raise TrainingRejected(f"{where}: the sparse tensors have more than {_MAX_CELLS} cells: send fewer.")


def forward_backward_output(result: ForwardBackwardResult) -> bytes:
    """Return a result as the client reads it."""
    output = pb.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord")
    output.metrics.update(result.metrics)
    for record in _records(result.outputs):
        output.loss_fn_outputs.append(record)
    return output.SerializeToString()


def document(payload: bytes) -> Mapping[str, object]:
    """Return a payload that the gateway has checked and written as JSON."""
    parsed: Mapping[str, object] = orjson.loads(payload)
    return parsed


def _datum(message: pb.Datum, where: str) -> Datum:
    tokens = [_tokens(chunk, f"{where}.model_input[{n}]") for n, chunk in enumerate(message.model_input)]
    if not tokens:
        raise TrainingRejected(f"{where}.model_input: it is empty.")
    inputs = {
        name: _array(tensor, f"{where}.loss_fn_inputs.{name[:64]}") for name, tensor in message.loss_fn_inputs.items()
    }
    return Datum(tokens=np.concatenate(tokens), inputs=inputs)


def _tokens(chunk: pb.Chunk, where: str) -> npt.NDArray[np.int64]:
    kind = chunk.WhichOneof("kind")
    if kind != "encoded_text":
        raise TrainingRejected(f"{where}: only text can be trained on; this is {kind or 'of an unknown kind'}.")
    content = chunk.encoded_text.tokens
    if len(content) % 4:
        raise TrainingRejected(f"{where}: {len(content)} bytes are no whole number of int32.")
    return np.frombuffer(content, "<i4").astype(np.int64)


def _array(tensor: pb.Tensor, where: str) -> npt.NDArray[np.generic]:
    dtype = _DTYPES.get(tensor.dtype)
    if dtype is None:
        raise TrainingRejected(f"{where}: its dtype must be float32 or int64.")
    shape = tuple(tensor.shape)
    if len(shape) > 2 or any(size < 0 for size in shape) or math.prod(shape) > _MAX_CELLS:
        raise TrainingRejected(f"{where}: its shape {list(shape)[:8]} is not supported.")
    if tensor.WhichOneof("encoding") == "sparse_csr":
        return _dense(tensor.sparse_csr, dtype, shape, where)
    if len(tensor.dense) != math.prod(shape) * dtype.itemsize:
        raise TrainingRejected(f"{where}: {len(tensor.dense)} bytes do not fit the shape {list(shape)}.")
    return _wide(np.frombuffer(tensor.dense, dtype).reshape(shape))


def _dense(sparse: pb.SparseCsr, dtype: np.dtype[Any], shape: Sequence[int], where: str) -> npt.NDArray[np.generic]:
    sizes = (len(sparse.values), dtype.itemsize), (len(sparse.crow_indices), 8), (len(sparse.col_indices), 8)
    if len(shape) != 2 or any(size % item for size, item in sizes):
        raise TrainingRejected(f"{where}: its sparse arrays do not fit a matrix.")
    values = np.frombuffer(sparse.values, dtype)
    rows, columns = np.frombuffer(sparse.crow_indices, _INDEX), np.frombuffer(sparse.col_indices, _INDEX)
    fits = len(rows) == shape[0] + 1 and len(columns) == len(values)
    fits = fits and rows[0] == 0 and rows[-1] == len(values) and bool((np.diff(rows) >= 0).all())
    if not fits or (len(columns) and (columns.min() < 0 or columns.max() >= shape[1])):
        raise TrainingRejected(f"{where}: its sparse indices do not fit the shape {list(shape)}.")
    dense = np.zeros(shape, dtype)
    dense[np.repeat(np.arange(shape[0]), np.diff(rows)), columns] = values
    return _wide(dense)


def _wide(array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    return array.astype(np.float32 if array.dtype.kind == "f" else np.int64)


def _loss_config(request: pb.ForwardBackwardRequest) -> dict[str, float]:
    if not request.loss_fn_config_v2:
        return dict(request.loss_fn_config)
    config = {}
    for name, value in request.loss_fn_config_v2.items():
        if value.WhichOneof("kind") != "number":
            raise TrainingRejected(f"loss_fn_config.{name[:64]}: it must be a number.")
        config[name] = value.number
    return config


def _records(outputs: Sequence[Mapping[str, npt.NDArray[Any]]]) -> Iterator[pb.ArrayRecord]:
    """Yield the outputs, with a new record wherever the shape behind the first dimension changes."""
    start = 0
    while start < len(outputs):
        shapes = _shapes(outputs[start])
        end = start
        while end < len(outputs) and _shapes(outputs[end]) == shapes:
            end += 1
        record = pb.ArrayRecord(type_tag="ArrayRecord", num_datums=end - start)
        for name, shape in shapes.items():
            arrays = [np.ascontiguousarray(each[name], "<f4") for each in outputs[start:end]]
            field = record.fields[name]
            field.data = b"".join(array.tobytes() for array in arrays)
            field.offsets = np.cumsum([0, *(array.nbytes for array in arrays)], dtype=_INDEX).tobytes()
            field.dtype = pb.DTYPE_FLOAT32
            field.trailing_shape.extend(shape)
        yield record
        start = end


def _shapes(output: Mapping[str, npt.NDArray[Any]]) -> dict[str, tuple[int, ...]]:
    return {name: array.shape[1:] for name, array in output.items()}
