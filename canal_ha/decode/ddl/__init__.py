"""Statements that define tables: their grammar, their effect on tables, and how canal reports them. Pure."""
