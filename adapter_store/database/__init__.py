"""Connections, transactions, tenant scoping, paging and error mapping."""
