"""Parts of the Iceberg target: names, columns, progress in tables, and rows in files, on pyiceberg.

A table's commit has the progress of the destination in the summary of its snapshot. Raises SinkRefused for what can
never be written, and pyiceberg's errors, which canal_ha.pipeline.targets.iceberg turns into ours.
"""
