"""The entry point for reading an adapter: at upload, at load and at the end of training."""

from dataclasses import dataclass
from typing import BinaryIO

from loragate.peft_format.checks.bounds import check_bounds
from loragate.peft_format.checks.values import check_tied, largest_values
from loragate.peft_format.config.lora_config import LoraConfig, parse_config
from loragate.peft_format.digest import adapter_digest
from loragate.peft_format.plan.layout import BaseLayout
from loragate.peft_format.plan.plan import AdapterPlan
from loragate.peft_format.plan.planner import plan_adapter
from loragate.peft_format.safetensors.header import read_header


@dataclass(frozen=True)
class AdapterReading:
    config: LoraConfig
    plan: AdapterPlan
    digest: str


def read_adapter(config_json: bytes, tensors: BinaryIO, size: int, layout: BaseLayout) -> AdapterReading:
    """Read an adapter and check all of it against a base model; raises AdapterRejected.

    `tensors` is a seekable safetensors file of `size` bytes. The cheap checks come first; the tensors' bytes
    are read only after all other checks, and a megabyte at a time.
    """
    config = parse_config(config_json)
    header = read_header(tensors, size)
    plan = plan_adapter(config, header, layout)
    check_bounds(plan, largest_values(tensors, header), layout)
    check_tied(tensors, plan.tied)
    return AdapterReading(config, plan, adapter_digest(config, header, tensors))
