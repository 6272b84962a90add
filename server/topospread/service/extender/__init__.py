"""The verbs of kube-scheduler's extender: filter, prioritize, preempt, and unschedulable pods."""
