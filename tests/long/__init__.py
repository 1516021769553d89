"""Servers and clients that CI has not: run by `deploy/test-long.sh`."""
