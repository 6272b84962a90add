"""The verbs of kube-scheduler's extender.

`extend` judges and scores the nodes that the scheduler names, or holds one of them; `preemption`
says which nodes a pod could go to without their victims; `unschedulable_pods` remembers pods that
were refused, and wakes them when they fit. HTTP and JSON are the caller's.
"""
