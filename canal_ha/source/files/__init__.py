"""A source that is a directory of binlog files: the files, their dump thread, and questions about positions."""
