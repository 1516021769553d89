"""Tests with servers and clients that CI does not have: run by `deploy/test-long.sh`."""
