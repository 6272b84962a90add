"""Several serving processes on one port, under a supervisor."""
