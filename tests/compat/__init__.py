"""Comparisons with canal, with its clients, and with the real servers' own descriptions of their tables."""
