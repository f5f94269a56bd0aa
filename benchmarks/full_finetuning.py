"""All of a small model's weights trained on a token file, as plain as it goes: what adapters are compared with.

    python benchmarks/full_finetuning.py BASE TOKENS EPOCHS BATCH LEARNING_RATE THREADS

tells each step's loss on a line of its own.
"""

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from loragate.finetune.data.token_file import TokenFile
from loragate.finetune.training.rows import Rows, one_row


def main() -> None:
    base, tokens, epochs, batch, rate, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="sdpa")
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.config.use_cache = False
    model.train()
    rows = Rows(TokenFile(Path(tokens)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=float(rate), weight_decay=0.0)
    for _ in range(int(epochs)):
        order = torch.randperm(len(rows)).tolist()
        for start in range(0, len(order), int(batch)):
            loss = model(**one_row([rows[place] for place in order[start : start + int(batch)]])).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            print(loss.item(), flush=True)


if __name__ == "__main__":
    main()
