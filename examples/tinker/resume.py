"""Continues a run from a state that `supervised.py` saved, with the moments of its optimizer.

    python examples/tinker/resume.py tinker://.../weights/learned

Reads TINKER_BASE_URL, TINKER_API_KEY and HF_ENDPOINT; see README.md beside it.
"""

import sys

import tinker
from tinker import types

(path,) = sys.argv[1:]
service = tinker.ServiceClient()
training = service.create_training_client_from_state_with_optimizer(path).result()
tokenizer = training.get_tokenizer()
tokens = tokenizer.encode("Paris is the capital of France.", add_special_tokens=False)
datum = types.Datum(
    model_input=types.ModelInput.from_ints(tokens[:-1]),
    loss_fn_inputs={"target_tokens": tokens[1:], "weights": [1.0] * (len(tokens) - 1)},
)
losses = training.forward_backward([datum], "cross_entropy")
training.optim_step(types.AdamParams(learning_rate=1e-3))
print(f"loss {losses.result().metrics['loss:sum']:.3f}")
print(training.save_state("resumed").result().path)
