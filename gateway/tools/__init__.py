"""Tool calls: how models write them, how they are read while they come, how a model is made to write one."""
