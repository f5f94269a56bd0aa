"""Trains with a loss of its own, which is computed here: a preference for one answer over another (DPO without the
reference model).

    python examples/tinker/custom_loss.py

Needs `pip install torch`. Reads TINKER_BASE_URL, TINKER_API_KEY and HF_ENDPOINT; see README.md beside it.
"""

import tinker
import torch
from tinker import types

service = tinker.ServiceClient()
(model,) = service.get_server_capabilities().supported_models
training = service.create_lora_training_client(base_model=model.model_name, rank=8, seed=1).result()
tokenizer = training.get_tokenizer()


def answered(answer: str) -> types.Datum:
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    tokens = [*prompt, *tokenizer.encode(answer, add_special_tokens=False), tokenizer.eos_token_id]
    weights = [0.0] * (len(prompt) - 1) + [1.0] * (len(tokens) - len(prompt))
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={"target_tokens": tokens[1:], "weights": weights},
    )


chosen, rejected = answered("PARIS!"), answered("Paris")


def prefer(data: list[types.Datum], logprobs: list[torch.Tensor]) -> tuple[torch.Tensor, dict[str, float]]:
    """Return -log sigmoid of the margin between the two answers, and the margin as a metric."""
    weights = [torch.tensor(datum.loss_fn_inputs["weights"].data) for datum in data]
    sums = [(each * weight).sum() for each, weight in zip(logprobs, weights, strict=True)]
    margin = sums[0] - sums[1]
    return -torch.nn.functional.logsigmoid(0.1 * margin), {"margin:mean": float(margin)}


for step in range(8):
    result = training.forward_backward_custom([chosen, rejected], prefer).result()
    training.optim_step(types.AdamParams(learning_rate=3e-3)).result()
    print(f"step {step}: loss {result.metrics['loss:sum']:.3f}, margin {result.metrics['margin:mean']:.2f}")
