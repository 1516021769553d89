"""The demonstration that `bash deploy/demo.sh` runs."""
