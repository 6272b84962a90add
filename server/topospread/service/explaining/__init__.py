"""Why a pod fits where it does: accounts by constraint and domain, advice, warnings. No I/O."""
