"""The verbs of the command line, one module each; most print their own answers."""
