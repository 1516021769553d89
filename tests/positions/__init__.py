"""Tests of where a node resumes reading after changes of source, node or cursor, on real MySQL and MariaDB servers."""
