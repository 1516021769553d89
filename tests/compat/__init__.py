"""Comparisons with other programs and with what real servers say of themselves."""
