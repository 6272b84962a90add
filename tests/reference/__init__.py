"""The reference model: kube-scheduler's PodTopologySpread as a readable specification.

Plain scalar Python on Kubernetes objects as `kubectl get -o json` prints them. It counts every pod
anew for every question and imports nothing from the server, so that the two can only agree by
both being right. Each rule names its source: a proposal (KEP-895, KEP-1258, KEP-3022) or a
numbered fact (F1 to F35) of the README beside this file.
"""
