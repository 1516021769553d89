"""Programs that read a workload through canal-ha, one process each. They print one JSON object: rows, seconds, ..."""
