"""Makes a sound log directory out of a damaged one."""
