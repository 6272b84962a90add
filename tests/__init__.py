"""The tests. They mirror the server's rooms; reference/ and conformance/ say what is right."""
