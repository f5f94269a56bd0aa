"""What a payload may ask for."""

import pytest

from loragate.trainer.errors import TrainingRejected
from loragate.trainer.worker.requests import forward_backward
from loragate.v1 import training_pb2 as pb


def test_sparse_tensors_cannot_ask_for_any_amount_of_memory() -> None:
    rows = 1 << 13
    sparse = pb.SparseCsr(crow_indices=bytes(8 * (rows + 1)))
    tensor = pb.Tensor(dtype=pb.DTYPE_FLOAT32, shape=[rows, 1 << 10], sparse_csr=sparse)
    chunk = pb.Chunk(encoded_text=pb.EncodedText(tokens=bytes(4)))
    datum = pb.Datum(model_input=[chunk], loss_fn_inputs={"weights": tensor})
    request = pb.ForwardBackwardRequest(model_id="m", seq_id=1, data=[datum] * 16, loss_fn="cross_entropy")
    with pytest.raises(TrainingRejected, match=r"data\[8\]\.loss_fn_inputs\.weights: the sparse tensors"):
        forward_backward("run", request.SerializeToString())
