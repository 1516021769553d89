"""Pipelines without Spark: one process reads destinations and writes the changes of whole transactions to a target.

description -> reading -> portion -> (latest) -> targets. A target stores a reader's progress together with the rows, so
a crash neither loses nor doubles a row.
"""
