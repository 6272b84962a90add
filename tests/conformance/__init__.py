"""kube-scheduler's recorded answers and the proposals' own stories, run on every evaluator."""
