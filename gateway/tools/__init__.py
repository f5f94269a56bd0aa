"""Tool calls: the formats in which models write them, streaming parsers, and grammars that constrain a model to one."""
