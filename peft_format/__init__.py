"""The one reading of PEFT's LoRA format: config and tensors in, a plan per module or a refusal in words out.

`reading.read_adapter` is the whole of it; the other modules are its steps, in this order:

    config.parse_config   adapter_config.json, every field of PEFT's `LoraConfig` classified in `fields`
    header.read_header    the safetensors header, bounded before it is parsed
    planning.plan_adapter targets, ranks and scalings resolved against the base model, tensors against those;
                          what a plan can hold is in `plan`, and each of its parts has a module that makes it
    values.largest_values no NaN, no infinity
    bounds.check_bounds   nothing that overflows in the dtype that is served
    values.check_tied     what PEFT saved twice is there twice alike
    digest.adapter_digest what the adapter is: its canonical config and its tensors
"""
