"""The columns of each table as of any position in the binlog. Pure; canal_ha.source.history fills and stores it."""
