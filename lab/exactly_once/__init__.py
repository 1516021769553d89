"""Kills pipelines, nodes and target servers while rows are written, and compares targets with the source."""
