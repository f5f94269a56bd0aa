"""Jobs of the method `classify` over REST and gRPC, on a base model that takes heads for labels."""

from typing import Any

import pytest

from loragate.v1 import fine_tuning_pb2 as pb
from tests.gateway import tiny_model
from tests.gateway.fake_worker import FakeWorker
from tests.gateway.grpc_client import Client
from tests.gateway.routes.resources.test_fine_tuning_rejections import JOBS, file_of
from tests.gateway.running_gateway import Gateway
from tests.gateway.tiny_model import MODEL_ID

PATH = "method.classify.hyperparameters"
EVALUATION = {
    "problem_type": "single_label_classification",
    "examples": 3,
    "accuracy": 2 / 3,
    "macro_f1": 0.0,
    "mse": None,
    "pearson": None,
    "labels": [
        {"label": "a", "examples": 3, "precision": 1.0, "recall": 2 / 3, "f1": 0.8},
        {"label": "b", "examples": 0, "precision": 0.0, "recall": 0.0, "f1": 0.0},
    ],
    "confusion_matrix": [[2, 1], [0, 0]],
}


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    return tiny_model.HEADS


def classify(**hyperparameters: Any) -> dict[str, Any]:
    return {"method": {"type": "classify", "classify": {"hyperparameters": hyperparameters}}}


async def test_a_job_shows_how_well_its_result_classifies(gateway: Gateway, client: Client, upload: Any) -> None:
    file, worker = await file_of(gateway), FakeWorker(gateway)
    body = {"model": MODEL_ID, "training_file": file, **classify(n_epochs=2)}
    async with gateway.http() as http:
        answer = await http.post(JOBS, json=body)
        made = answer.json()
        assert made["method"]["classify"]["hyperparameters"]["validation_split"] == "auto"
        assert made["evaluation"] is None
        await worker.validate()
        assert await worker.succeed(await worker.train(), upload, EVALUATION)
        found = (await http.get(f"{JOBS}/{made['id']}")).json()
    assert found["evaluation"] == EVALUATION
    assert found["method"]["classify"]["hyperparameters"]["validation_split"] == 0.1
    message = await client.fine_tuning.Get(
        pb.GetFineTuningJobRequest(fine_tuning_job_id=made["id"]), metadata=client.metadata
    )
    assert message.method.classify.hyperparameters.validation_split == 0.1
    assert [list(row.examples) for row in message.evaluation.confusion_matrix] == EVALUATION["confusion_matrix"]
    assert message.evaluation.macro_f1 == 0.0
    assert not message.evaluation.HasField("mse")
    assert message.evaluation.labels[0] == pb.FineTuningLabelEvaluation(
        label="a", examples=3, precision=1.0, recall=2 / 3, f1=0.8
    )


async def test_bodies_that_are_rejected(gateway: Gateway, upload: Any) -> None:
    file = await file_of(gateway)
    await upload("text")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"model": "text", **classify()}, "model"),
        (classify(packing=True), f"{PATH}.packing"),
        (classify(streaming=True), f"{PATH}.streaming"),
        (classify(validation_split=0.6), f"{PATH}.validation_split"),
        (classify(beta=0.1), f"{PATH}.beta"),
        ({"validation_file": file, **classify(validation_split=0.2)}, f"{PATH}.validation_split"),
        ({"method": {"type": "classify", "dpo": {}}}, "method.dpo"),
    ]
    async with gateway.http() as http:
        for body, param in cases:
            answer = await http.post(JOBS, json={"model": MODEL_ID, "training_file": file, **body})
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text
