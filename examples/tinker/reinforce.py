"""Reinforcement learning: an adapter learns to answer with a city that ends in an o. The demo's model does not know the
countries, and so ends one answer of ten in an o at first. Prints the reward on held-out questions.

    python examples/tinker/reinforce.py [SEED]

Reads TINKER_BASE_URL, TINKER_API_KEY and HF_ENDPOINT; see README.md beside it.
"""

import random
import sys

import tinker
from tinker import types

SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 0
STEPS, PROMPTS, SAMPLES = 40, 8, 8
FIRST = "Brazil Chile Kenya Ghana Nepal Mali Fiji Malta Cuba Iraq Qatar Angola Zambia Benin Libya Sudan"
COUNTRIES = f"{FIRST} Yemen Oman Serbia Latvia Bolivia Ecuador Panama Jamaica Haiti Senegal Gabon Chad".split(" ")
HELD_OUT, TRAINED_ON = COUNTRIES[::4], [each for n, each in enumerate(COUNTRIES) if n % 4]

service = tinker.ServiceClient()
(model,) = service.get_server_capabilities().supported_models
training = service.create_lora_training_client(base_model=model.model_name, rank=8, seed=SEED).result()
tokenizer = training.get_tokenizer()
chooser = random.Random(SEED)  # noqa: S311 (of questions)
params = types.SamplingParams(max_tokens=12, temperature=1.0)


def prompt_of(country: str) -> list[int]:
    messages = [{"role": "user", "content": f"What is the capital of {country}?"}]
    return tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)


def reward_of(sequence: types.SampledSequence) -> float:
    return float(tokenizer.decode(sequence.tokens, skip_special_tokens=True).strip().endswith("o"))


def sampled(
    sampler: tinker.SamplingClient, countries: list[str]
) -> list[tuple[list[int], list[types.SampledSequence]]]:
    """Return each question's prompt with its samples. All are requested at once."""
    prompts = [prompt_of(country) for country in countries]
    futures = [sampler.sample(types.ModelInput.from_ints(each), SAMPLES, params) for each in prompts]
    return [(prompt, list(future.result().sequences)) for prompt, future in zip(prompts, futures, strict=True)]


def datum_of(prompt: list[int], sequence: types.SampledSequence, advantage: float) -> types.Datum:
    tokens, context = [*prompt, *sequence.tokens], len(prompt) - 1
    inputs = {
        "target_tokens": tokens[1:],
        "logprobs": [0.0] * context + list(sequence.logprobs),
        "advantages": [0.0] * context + [advantage] * len(sequence.tokens),
    }
    return types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=inputs)


def held_out_reward(sampler: tinker.SamplingClient) -> float:
    rewards = [reward_of(each) for _, sequences in sampled(sampler, HELD_OUT) for each in sequences]
    return sum(rewards) / len(rewards)


sampler = training.save_weights_and_get_sampling_client().result()
print(f"held-out reward before: {held_out_reward(sampler):.2f}", flush=True)
for step in range(STEPS):
    data, total = [], 0.0
    for prompt, sequences in sampled(sampler, chooser.sample(TRAINED_ON, PROMPTS)):
        rewards = [reward_of(each) for each in sequences]
        mean = sum(rewards) / len(rewards)
        total += mean / PROMPTS
        data += [datum_of(prompt, each, r - mean) for each, r in zip(sequences, rewards, strict=True) if r != mean]
    if data:
        training.forward_backward(data, "importance_sampling")
        training.optim_step(types.AdamParams(learning_rate=3e-3, beta2=0.95, eps=1e-8))
    sampler = training.save_weights_and_get_sampling_client().result()
    print(f"step {step}: reward {total:.2f}", flush=True)
print(f"held-out reward after: {held_out_reward(sampler):.2f}")
