"""ExplainPod: findings by constraint and domain, warnings, and suggestions that were tried out."""
