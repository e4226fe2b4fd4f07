"""The graph operators as JAX primitives: closed under differentiation, batching and transposition."""
