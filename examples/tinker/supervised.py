"""Teaches an adapter to answer in capitals, step by step, and publishes it as `capitals`.

    python examples/tinker/supervised.py

Reads TINKER_BASE_URL, TINKER_API_KEY and HF_ENDPOINT; see README.md beside it.
"""

import tinker
from tinker import types

COUNTRIES = {"France": "PARIS", "Italy": "ROME", "Japan": "TOKYO", "Spain": "MADRID", "Egypt": "CAIRO"}

service = tinker.ServiceClient()
(model,) = service.get_server_capabilities().supported_models
training = service.create_lora_training_client(
    base_model=model.model_name, rank=8, seed=1, user_metadata={"loragate_adapter": "capitals"}
).result()
tokenizer = training.get_tokenizer()


def example(question: str, answer: str) -> types.Datum:
    """Return a sequence of which only the answer is learned."""
    messages = [{"role": "user", "content": question}]
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    tokens = [*prompt, *tokenizer.encode(answer, add_special_tokens=False), tokenizer.eos_token_id]
    weights = [0.0] * (len(prompt) - 1) + [1.0] * (len(tokens) - len(prompt))
    inputs = {"target_tokens": tokens[1:], "weights": weights}
    return types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=inputs)


data = [example(f"What is the capital of {country}?", capital) for country, capital in COUNTRIES.items()]
for step in range(12):
    # Both are sent at once: the server computes them in order.
    losses = training.forward_backward(data, "cross_entropy")
    training.optim_step(types.AdamParams(learning_rate=5e-3))
    print(f"step {step}: loss {losses.result().metrics['loss:sum'] / len(data):.3f} a question")
print(training.save_state("learned").result().path)
print(training.save_weights_for_sampler("learned").result().path)
