"""The command line: `main` finds a verb in `commands`, which calls a server and prints."""
