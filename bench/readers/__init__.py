"""Programs that read a workload through canal-ha, one process each. Each prints a JSON object: rows, seconds, ..."""
