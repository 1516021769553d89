"""Chaos on real parts: seeded faults on a whole cluster while rows are written, and a verdict on what arrived.

`schedule` and `verdict` decide and are pure; `stage` holds the servers, `faults` harms them, `run` leads through the
steps. The command is `python -m lab.chaos`.
"""
