"""Trials with a real kube-scheduler, API server and etcd, which are not a part of the test suite.

The binaries are found in a folder that is named: nothing here builds or fetches them.
"""
