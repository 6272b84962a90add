"""ExplainPod: reports by constraint and domain, findings, and suggestions that were tried out."""
