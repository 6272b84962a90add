"""The verbs, each in a module, or a few that belong together; see `main.VERBS`."""
