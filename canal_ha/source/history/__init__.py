"""The table history of a destination: read from its source and stored in a SQLite file or a MySQL database."""
