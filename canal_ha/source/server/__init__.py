"""A source that is a running server: its dump thread, questions about positions, and when to switch to a standby."""
