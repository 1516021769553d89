"""Faults seeded into copies of our modules, to prove that the simulation notices them.

A mutant replaces a text in one module. `python -m lab.mutants` runs seeds of the simulation with each mutant until one
breaks a promise, and prints which. A mutant whose text is not in the module exactly once is an error.
"""
