"""Packages of the API that ages at Kubernetes' pace; their modules are generated."""
