"""The algebra by itself: formulas at their edges, and two ways to judge that must agree."""
