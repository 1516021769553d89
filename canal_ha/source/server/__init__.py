"""A source that is a running server: its dump thread, questions about it, and the rule for switching to a standby."""
