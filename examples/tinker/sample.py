"""Samples from a checkpoint, or from a version of an adapter or its alias, and scores a prompt.

    python examples/tinker/sample.py tinker://capitals/sampler_weights/default "What is the capital of France?"

Reads TINKER_BASE_URL, TINKER_API_KEY and HF_ENDPOINT; see README.md beside it.
"""

import sys

import tinker
from tinker import types

path, question = sys.argv[1:]
sampler = tinker.ServiceClient().create_sampling_client(model_path=path).result()
tokenizer = sampler.get_tokenizer()
messages = [{"role": "user", "content": question}]
prompt = types.ModelInput.from_ints(
    tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
)
params = types.SamplingParams(max_tokens=24, temperature=0.0)
for sequence in sampler.sample(prompt, num_samples=1, sampling_params=params).result().sequences:
    print(tokenizer.decode(sequence.tokens, skip_special_tokens=True), f"(logprob {sum(sequence.logprobs):.2f})")
scores = [score for score in sampler.compute_logprobs(prompt).result() if score is not None]
print(f"the prompt's logprob: {sum(scores):.2f}")
