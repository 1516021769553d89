"""Servers whose formats are older than what CI runs, for the long suites (`deploy/test-long.sh old`)."""
