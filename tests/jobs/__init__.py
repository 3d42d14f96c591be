"""Jobs and queries that tests check, run and compare."""
