"""The row check: a proof, equation by equation, that a flat jaxpr treats vertices (and edges) independently."""
