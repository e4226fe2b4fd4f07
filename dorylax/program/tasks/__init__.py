"""What a step is cut into: tasks, what crosses between them, and what is known of the values that decide it."""
