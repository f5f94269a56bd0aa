"""The package is light: gateways and stores read adapters with it and must not load torch."""

import subprocess
import sys


def test_reading_needs_neither_torch_nor_safetensors_nor_pydantic() -> None:
    script = (
        "import sys, loragate.peft_format.read\n"
        "print(*({'torch', 'transformers', 'peft', 'safetensors', 'pydantic'} & set(sys.modules)))"
    )
    seen = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert seen.stdout.strip() == ""
