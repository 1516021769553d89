"""Connections to one server: sessions for questions, the dump itself, and what kind of server answers."""
