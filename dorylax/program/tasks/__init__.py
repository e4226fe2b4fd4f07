"""Tasks of a step: the cut into tasks, the values that cross between them, and the analyses that decide it."""
