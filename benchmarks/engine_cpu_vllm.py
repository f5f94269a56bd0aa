"""vLLM's side of `engine_cpu.py`, run by the Python of an environment that has it: a line of JSON in, a line out."""

import json
import sys

from vllm import LLM, SamplingParams
from vllm.inputs import TokensPrompt
from vllm.lora.request import LoRARequest


def main() -> None:
    base, adapters, new = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
    requests = [LoRARequest(f"a{i}", i + 1, path) for i, path in enumerate(adapters)]
    model = LLM(
        base,
        dtype="float32",
        skip_tokenizer_init=True,
        enable_lora=True,
        max_loras=len(adapters),
        max_lora_rank=16,
        max_model_len=512,
        max_num_seqs=16,
        enable_prefix_caching=False,
    )
    sampling = SamplingParams(temperature=0, max_tokens=new, ignore_eos=True, detokenize=False)
    for line in sys.stdin:
        turn = json.loads(line)
        count, prompts = turn["adapters"], [TokensPrompt(prompt_token_ids=ids) for ids in turn["prompts"]]
        lora = [requests[i % count] for i in range(len(prompts))] if count else None
        outputs = model.generate(prompts, sampling, lora_request=lora, use_tqdm=False)
        print(json.dumps([list(output.outputs[0].token_ids) for output in outputs]), flush=True)


if __name__ == "__main__":
    main()
