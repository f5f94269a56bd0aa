"""Invalid jobs: each rejection names its field. And which callers can see and control which jobs."""

from typing import Any

import pytest
from tokenizers import Tokenizer

from loragate.adapter_store.limits import TenantLimits
from loragate.gateway.errors import InvalidRequest
from loragate.gateway.operations.job_creation import checked_hyperparameters
from loragate.gateway.schemas.resources.fine_tuning import JobCreate
from tests.gateway import tiny_model
from tests.gateway.fake_worker import FakeWorker
from tests.gateway.running_gateway import Gateway
from tests.gateway.tiny_model import MODEL_ID

JOBS = "/v1/fine_tuning/jobs"
SUPERVISED = "method.supervised.hyperparameters"

BOUNDS: dict[str, tuple[Any, ...]] = {
    "n_epochs": (0, 51, 1.5, "many", True, None, [1]),
    "batch_size": (0, 257, "1"),
    "learning_rate_multiplier": (0, -1, 101, "x"),
    "lora_rank": (0, 257, 65, "x"),
    "lora_alpha": (0, 1025),
    "lora_dropout": (-0.1, 0.6, "auto", None),
    "use_rslora": (1, "true", None),
    "use_dora": ("auto",),
    "alora_invocation_tokens": ("auto", 7, [], [7] * 65, [5]),  # this base model takes no activated adapter
    "target_modules": ("some", [], "q_proj", None),
    "quantization": ("int8", None),
    "max_length": (15, (1 << 20) + 1, "x"),
    "packing": ("yes", 1),
    "lr_scheduler": ("polynomial", None),
    "warmup_ratio": (-0.1, 0.51),
    "weight_decay": (-1, 2),
    "max_grad_norm": (0, 101),
    "early_stopping_patience": (0, 101, "auto"),
    "streaming": ("yes", 1, None),
    "n_steps": (0, 1_000_001, "auto", 5),
}

REJECTED: list[tuple[dict[str, Any], str]] = [
    ({"model": None}, "model"),
    ({"model": 5}, "model"),
    ({"model": "m" * 1025}, "model"),
    ({"training_file": None}, "training_file"),
    ({"training_file": "f" * 65}, "training_file"),
    ({"validation_file": 3}, "validation_file"),
    ({"suffix": ""}, "suffix"),
    ({"suffix": "s" * 65}, "suffix"),
    ({"suffix": "a b"}, "suffix"),
    ({"suffix": "a:b"}, "suffix"),
    ({"suffix": "-a"}, "suffix"),
    ({"suffix": "a\n"}, "suffix"),
    ({"seed": -1}, "seed"),
    ({"seed": 1 << 31}, "seed"),
    ({"seed": "1"}, "seed"),
    ({"metadata": {str(n): "x" for n in range(17)}}, "metadata"),
    ({"metadata": {"k": "v" * 513}}, "metadata.k"),
    ({"metadata": {"k": 1}}, "metadata.k"),
    ({"metadata": {"k": "\0"}}, "metadata.k"),
    ({"metadata": {"k" * 65: "v"}}, f"metadata.{'k' * 65}"),
    ({"metadata": []}, "metadata"),
    ({"integrations": [{"type": "wandb", "wandb": {"project": "p"}}]}, "integrations"),
    ({"hyper_parameters": {}}, "hyper_parameters"),
    ({"hyperparameters": {"n_epochs": 0}}, "hyperparameters.n_epochs"),
    ({"hyperparameters": {}, "method": {"type": "supervised"}}, "hyperparameters"),
    ({"method": {}}, "method.type"),
    ({"method": {"type": "reinforcement"}}, "method.type"),
    ({"method": {"type": "reinforcement", "reinforcement": {}}}, "method.type"),
    ({"method": {"type": "classify"}}, "method.type"),  # this base model takes no head for labels
    ({"method": {"type": "supervised", "dpo": {}}}, "method.dpo"),
    ({"method": {"type": "dpo", "supervised": {}}}, "method.supervised"),
    ({"method": {"type": "supervised", "supervised": {"n_epochs": 3}}}, "method.supervised.n_epochs"),
    ({"method": {"type": "supervised", "supervised": {"hyperparameters": {"epochs": 3}}}}, f"{SUPERVISED}.epochs"),
    ({"method": {"type": "supervised", "supervised": {"hyperparameters": {"beta": 1}}}}, f"{SUPERVISED}.beta"),
    ({"method": {"type": "dpo", "dpo": {"hyperparameters": {"beta": 0}}}}, "method.dpo.hyperparameters.beta"),
    ({"method": {"type": "dpo", "dpo": {"hyperparameters": {"beta": 11}}}}, "method.dpo.hyperparameters.beta"),
    ({"method": {"type": "dpo", "dpo": {"hyperparameters": {"packing": True}}}}, "method.dpo.hyperparameters.packing"),
    (
        {"method": {"type": "dpo", "dpo": {"hyperparameters": {"alora_invocation_tokens": [5]}}}},
        "method.dpo.hyperparameters.alora_invocation_tokens",
    ),
    (
        {"method": {"type": "classify", "classify": {"hyperparameters": {"alora_invocation_tokens": [5]}}}},
        "method.classify.hyperparameters.alora_invocation_tokens",
    ),
    (
        {"method": {"type": "dpo", "dpo": {"hyperparameters": {"lora_rank": 65}}}},
        "method.dpo.hyperparameters.lora_rank",
    ),
]


async def file_of(gateway: Gateway, purpose: str = "fine-tune", key: str | None = None) -> str:
    async with gateway.http(key) as http:
        made = await http.post("/v1/files", data={"purpose": purpose}, files={"file": ("a", b"{}")})
        return str(made.json()["id"])


def supervised(**hyperparameters: Any) -> dict[str, Any]:
    return {"method": {"type": "supervised", "supervised": {"hyperparameters": hyperparameters}}}


async def test_bodies_that_are_rejected(gateway: Gateway) -> None:
    file = await file_of(gateway)
    cases = [*REJECTED]
    for name, values in BOUNDS.items():
        cases += [(supervised(**{name: value}), f"{SUPERVISED}.{name}") for value in values]
    cases.append((supervised(streaming=True, packing=True), f"{SUPERVISED}.packing"))
    cases.append((supervised(streaming=True, lr_scheduler="cosine"), f"{SUPERVISED}.lr_scheduler"))
    cases.append((supervised(early_stopping_patience=3), f"{SUPERVISED}.early_stopping_patience"))
    cases.append(({"hyperparameters": {"early_stopping_patience": 3}}, "hyperparameters.early_stopping_patience"))
    invocation = {"alora_invocation_tokens": [5, 6]}
    cases.append((supervised(**invocation, use_dora=True), f"{SUPERVISED}.use_dora"))
    cases.append((supervised(**invocation, packing=True), f"{SUPERVISED}.packing"))
    cases += [
        (supervised(alora_invocation_tokens=[5, odd]), f"{SUPERVISED}.alora_invocation_tokens.1")
        for odd in (-1, 1 << 31, "6", 6.0, True)
    ]
    cases.append((supervised(target_modules=["q_proj", "k_proj"]), f"{SUPERVISED}.target_modules.1"))
    cases.append((supervised(target_modules=["q_proj", "(a+)+"]), f"{SUPERVISED}.target_modules.1"))
    cases.append((supervised(target_modules=["q_proj"] * 65), f"{SUPERVISED}.target_modules"))
    async with gateway.http() as http:
        for body, param in cases:
            answer = await http.post(JOBS, json={"model": MODEL_ID, "training_file": file} | body)
            error = answer.json()["error"]
            assert (answer.status_code, error["param"]) == (400, param), (body, answer.text)
            assert error["type"] == "invalid_request_error"
            assert error["code"] in ("invalid_value", "unknown_parameter")
            assert len(error["message"]) > 20, error
        assert (await http.get(JOBS)).json()["data"] == []


def test_the_head_is_no_target(tokenizer: Tokenizer) -> None:
    manifest = tiny_model.manifest(tokenizer)
    *others, head = (module.name for module in manifest.modules)
    manifest.output_head = head

    def checked(*targets: str) -> dict[str, Any]:
        asked = {"model": MODEL_ID, "training_file": "file-1", **supervised(target_modules=list(targets))}
        return checked_hyperparameters(JobCreate.model_validate(asked), manifest, TenantLimits())

    assert checked(*others) == {"target_modules": others}
    for target in (head, head.rpartition(".")[2]):
        with pytest.raises(InvalidRequest, match="head cannot be adapted") as caught:
            checked(others[0], target)
        assert caught.value.param == f"{SUPERVISED}.target_modules.1"


def test_invocations_are_of_the_base_model(tokenizer: Tokenizer) -> None:
    manifest = tiny_model.manifest(tokenizer)
    manifest.adapter_kinds.append("alora")
    last = manifest.vocab_size - 1

    def checked(*invocation: int, model: str = MODEL_ID) -> dict[str, Any]:
        asked = {"model": model, "training_file": "file-1", **supervised(alora_invocation_tokens=list(invocation))}
        return checked_hyperparameters(JobCreate.model_validate(asked), manifest, TenantLimits())

    assert checked(0, last) == {"alora_invocation_tokens": [0, last]}
    with pytest.raises(InvalidRequest, match=f"has {manifest.vocab_size} tokens") as caught:
        checked(0, last + 1)
    assert caught.value.param == f"{SUPERVISED}.alora_invocation_tokens.1"
    with pytest.raises(InvalidRequest, match="not from an adapter") as caught:
        checked(0, model="poet:3")
    assert caught.value.param == f"{SUPERVISED}.alora_invocation_tokens"


async def test_all_values_within_the_bounds_are_accepted(gateway: Gateway) -> None:
    file = await file_of(gateway)
    lowest = {"n_epochs": 1, "batch_size": 1, "learning_rate_multiplier": 1e-6, "lora_rank": 1, "lora_alpha": 1}
    lowest |= {"max_length": 16, "early_stopping_patience": 1, "max_grad_norm": 1e-3}
    highest: dict[str, Any] = {"n_epochs": 50, "batch_size": 256, "learning_rate_multiplier": 100, "lora_rank": 64}
    highest |= {"lora_alpha": 1024, "lora_dropout": 0.5, "use_rslora": True, "use_dora": True, "quantization": "none"}
    highest |= {"target_modules": ["q_proj", "model.layers.0.self_attn.v_proj"], "max_length": 1 << 20}
    highest |= {"packing": True, "lr_scheduler": "linear", "warmup_ratio": 0.5, "weight_decay": 1}
    worker = FakeWorker(gateway)
    async with gateway.http() as http:
        for asked in (lowest, highest):
            body = {"model": MODEL_ID, "training_file": file, "validation_file": file, **supervised(**asked)}
            made = await http.post(JOBS, json=body | {"suffix": "s" * 64, "metadata": {}})
            assert made.status_code == 200, made.text
            reported = made.json()["method"]["supervised"]["hyperparameters"]
            assert {name: reported[name] for name in asked} == asked
            await worker.validate()
            made = await http.get(f"{JOBS}/{made.json()['id']}")
            known = made.json()["method"]["supervised"]["hyperparameters"]
            assert {name: known[name] for name in asked} == asked | {"max_length": known["max_length"]}
            assert "auto" not in known.values()
        plain = {"model": MODEL_ID, "training_file": file, "integrations": [], "hyperparameters": {"n_epochs": 2}}
        made = await http.post(JOBS, json=plain)
        assert made.json()["hyperparameters"]["n_epochs"] == 2
        assert made.json()["method"]["type"] == "supervised"


async def test_files_and_models_of_other_tenants_are_not_found(gateway: Gateway, upload: Any) -> None:
    await upload("poet")
    own, adapter = await file_of(gateway), await file_of(gateway, "adapter")
    foreign = await file_of(gateway, key=gateway.other_key)
    cases: list[tuple[dict[str, Any], int, str]] = [
        ({"training_file": foreign}, 404, "training_file"),
        ({"training_file": "file-nothing"}, 404, "training_file"),
        ({"training_file": "../x"}, 404, "training_file"),
        ({"training_file": adapter}, 400, "training_file"),
        ({"validation_file": foreign}, 404, "validation_file"),
        ({"validation_file": adapter}, 400, "validation_file"),
        ({"model": "nobodys"}, 404, "model"),
        ({"model": "poet:7"}, 404, "model"),
        ({"model": "poet@none"}, 404, "model"),
        ({"model": f"ft:{MODEL_ID}:first:poet:12345678"}, 404, "model"),
        ({"model": "gpt-4o-mini"}, 404, "model"),
    ]
    async with gateway.http() as http:
        for more, status, param in cases:
            answer = await http.post(JOBS, json={"model": MODEL_ID, "training_file": own} | more)
            assert (answer.status_code, answer.json()["error"]["param"]) == (status, param), answer.text
    async with gateway.http(gateway.other_key) as http:
        theirs = await http.post(JOBS, json={"model": "poet", "training_file": foreign})
        missing = await http.post(JOBS, json={"model": "goat", "training_file": foreign})
        assert theirs.status_code == missing.status_code == 404
        assert theirs.json()["error"]["message"].replace("poet", "goat") == missing.json()["error"]["message"]


async def test_the_limits_of_a_tenant(gateway: Gateway) -> None:
    file = await file_of(gateway)

    async def limited(**limits: int | None) -> None:
        async with gateway.admin() as admin:
            changed = await admin.patch(f"/admin/v1/tenants/{gateway.tenant_id}", json={"limits": limits})
            assert changed.status_code == 200, changed.text

    async with gateway.http() as http:

        async def ask(**more: Any) -> tuple[int, Any]:
            answer = await http.post(JOBS, json={"model": MODEL_ID, "training_file": file} | more)
            return answer.status_code, answer.json()

        await limited(max_unfinished_jobs=1)
        assert (await ask())[0] == 200
        status, body = await ask()
        assert (status, body["error"]["code"]) == (409, "too_many_jobs")
        await limited(max_unfinished_jobs=None, max_adapters=0)
        assert (await ask())[1]["error"]["code"] == "quota_exceeded"
        await limited(max_adapters=None, max_adapter_rank=4)
        status, body = await ask(**supervised(lora_rank=8))
        assert (status, body["error"]["code"]) == (409, "quota_exceeded")
        status, body = await ask()
        assert body["method"]["supervised"]["hyperparameters"]["lora_rank"] == 4, "all that it may have"


@pytest.mark.parametrize("path", ["", "/{job}/events", "/{job}/checkpoints"])
async def test_invalid_queries(gateway: Gateway, path: str) -> None:
    file = await file_of(gateway)
    async with gateway.http() as http:
        job = (await http.post(JOBS, json={"model": MODEL_ID, "training_file": file})).json()["id"]
        tail = job.removeprefix("ftjob-")
        odd = ["after=nothing", "after=", f"after=ftevent-{tail}-x", "after=ftevent-other-1", "after=%00", "limit=0"]
        odd += ["limit=101", "limit=many", f"after={'x' * 65}"]
        if not path:
            odd += ["metadata=a", "metadata[k=v", "metadata[k]=%00", "metadata=null&metadata[k]=v", "metadata[]x=v"]
            odd += ["metadata[]=null", "metadata[]=v"]
            odd += [f"metadata[k]={'v' * 513}", "&".join(f"metadata[{n}]=v" for n in range(17))]
        for query in odd:
            answer = await http.get(f"{JOBS}{path.format(job=job)}?{query}")
            assert answer.status_code == 400, (query, answer.text)
            assert answer.json()["error"]["param"] == query.partition("=")[0].partition("[")[0], answer.text


async def test_the_operator_and_a_tenant_administrator(gateway: Gateway) -> None:
    jobs = {}
    for key in (gateway.key, gateway.other_key):
        file = await file_of(gateway, key=key)
        async with gateway.http(key) as http:
            jobs[key] = (await http.post(JOBS, json={"model": MODEL_ID, "training_file": file})).json()["id"]
    ours, theirs = jobs.values()
    async with gateway.admin() as admin:
        made = await admin.post(f"/admin/v1/tenants/{gateway.tenant_id}/keys", json={"scopes": ["admin"]})

        async def ids(http: Any, query: str = "") -> list[str]:
            return [job["id"] for job in (await http.get(f"/admin/v1/jobs{query}")).json()["data"]]

        assert await ids(admin) == [theirs, ours]
        assert await ids(admin, f"?tenant={gateway.tenant_id}") == [ours]
        assert await ids(admin, "?limit=1") == [theirs]
        assert await ids(admin, f"?after={theirs}") == [ours]
        assert (await admin.get(f"/admin/v1/jobs/{ours}")).json()["tenant_id"] == gateway.tenant_id
        assert (await admin.get("/admin/v1/jobs/ftjob-x")).status_code == 404
        for part in ("events", "checkpoints"):
            async with gateway.http() as tenant:
                seen = (await tenant.get(f"{JOBS}/{ours}/{part}")).json()
            assert (await admin.get(f"/admin/v1/jobs/{ours}/{part}")).json() == seen
            assert (await admin.get(f"/admin/v1/jobs/ftjob-x/{part}")).status_code == 404
            assert (await admin.get(f"/admin/v1/jobs/{ours}/{part}?after=x")).json()["error"]["param"] == "after"
        assert (await admin.get("/admin/v1/jobs?status=odd")).json()["error"]["param"] == "status"
        async with gateway.http(made.json()["secret"]) as own:
            assert await ids(own) == [ours]
            for part in ("", "/events", "/checkpoints"):
                assert (await own.get(f"/admin/v1/jobs/{theirs}{part}")).status_code == 404
            for order in ("pause", "resume", "cancel"):
                assert (await own.post(f"/admin/v1/jobs/{theirs}/{order}")).status_code == 404
            assert (await own.post(f"/admin/v1/jobs/{ours}/cancel")).json()["status"] == "cancelled"
        assert (await admin.post(f"/admin/v1/jobs/{theirs}/resume")).status_code == 409
        assert (await admin.post(f"/admin/v1/jobs/{theirs}/pause")).json()["status"] == "paused"
        assert (await admin.post(f"/admin/v1/jobs/{theirs}/resume")).json()["status"] == "validating_files"
        cancelled = (await admin.post(f"/admin/v1/jobs/{theirs}/cancel")).json()
        assert cancelled["status"] == "cancelled"
        assert await ids(admin, "?status=cancelled") == [theirs, ours]
        events = (await admin.get("/admin/v1/audit?action=fine_tuning_job.cancel")).json()["data"]
    assert [(event["actor"].partition(":")[0], event["tenant_id"]) for event in events] == [
        ("admin_key", cancelled["tenant_id"]),
        ("api_key", gateway.tenant_id),
    ]


async def test_every_action_is_in_the_audit_log(gateway: Gateway) -> None:
    file = await file_of(gateway)
    async with gateway.http() as http, gateway.admin() as admin:
        job = (await http.post(JOBS, json={"model": MODEL_ID, "training_file": file})).json()["id"]
        for act in ("pause", "resume", "cancel", "resume"):  # the last is rejected: not an action
            await http.post(f"{JOBS}/{job}/{act}", headers={"x-request-id": act})
        found = (await admin.get(f"/admin/v1/audit?tenant_id={gateway.tenant_id}")).json()["data"]
    found = [event for event in found if event["target"] == f"fine_tuning_job:{job}"]
    reported = [(event["action"], event["request_id"]) for event in found]
    assert reported[:3] == [(f"fine_tuning_job.{act}", act) for act in ("cancel", "resume", "pause")]
    assert [action for action, _ in reported[3:]] == ["fine_tuning_job.create"]
    assert {event["actor"] for event in found} == {f"api_key:{gateway.key.split('-')[1]}"}
