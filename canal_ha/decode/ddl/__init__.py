"""Statements that define tables: their grammar, what each does to a table, and how canal reports it. Pure."""
