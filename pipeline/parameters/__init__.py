"""Parameter servers: weight gradients in, weight versions out (docs: architecture, "Pipeline")."""
