"""Tables that several verbs print, or that are too long to stand beside their verb."""
