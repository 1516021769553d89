"""A differential test: random DDL and DML on a real server, where SELECT says what each delivered row must be.

In: a database server and a seed. `script` yields statements and sees after each one which tables there are. `oracle`
runs them and records, for each, the rows that SELECT returns before and after it. `round` reads the same part of the
binlog through nodes in several situations (warm, lagging, ahead, after a take-over, cold). `judge` applies the
delivered changes to the rows before a statement and expects the rows after it, names and values.

Out: a table with statements, compared rows, wrong rows, and refusals by reason. A node may refuse a row; it may never
deliver a wrong name or value. `python -m lab.differential --help` runs it.
"""
