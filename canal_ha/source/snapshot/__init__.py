"""The existing rows of tables as entries that equal those of the binlog. Takes rows of SELECTs, gives segments."""
