"""Connections to one server: sessions for questions, the dump connection, and the kind of server."""
