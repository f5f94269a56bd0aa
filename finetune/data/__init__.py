"""Training files: from the JSONL that tenants send to token files that training reads by memory map; imports no
torch."""
