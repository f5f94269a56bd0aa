"""Training files: from JSONL, as tenants send it, to token files that training reads by memory map.

lines.py      a file's lines, one at a time, in bounded memory
examples.py   what a line may be: a chat, a prompt with its completion, a text, a preference
formats.py    which of these a file holds
examining.py  all that is wrong with a file, by line
marking.py    an example as text, with the parts that the model learns
beginnings.py of a very long text, as much as is kept
language.py   how the base model reads
encoding.py   the same as tokens
token_file.py tokens on disk, read where they lie
growing.py    the same while it is written
tokenising.py a whole file, once for each tokenizer and template
packing.py    examples side by side in rows of one length
"""
