"""The one reader of PEFT's LoRA format: from a config and tensors to a plan for each module, or an error for the owner.

`read.read_adapter` does all of it, in these steps:

    config.lora_config.parse_config   adapter_config.json; `fields` classifies every field of PEFT's `LoraConfig`
    safetensors.header.read_header    the safetensors header, bounded before it is parsed
    plan.planner.plan_adapter         targets, ranks and scalings resolved against the base model, then the tensors
                                      against those; `plan.plan` has the nouns, and a module makes each part
    checks.values.largest_values      no NaN, no infinity
    checks.bounds.check_bounds        nothing that overflows in the served dtype
    checks.values.check_tied          tensors that PEFT saved twice have the same values
    digest.adapter_digest             the adapter's identity: its canonical config and its tensors
"""
