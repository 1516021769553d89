"""canal's three schemas and the code generated from them (`generate.sh`; a test compares)."""
