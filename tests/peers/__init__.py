"""Programs that use canal's own clients, for tests."""
