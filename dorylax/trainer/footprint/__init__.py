"""The memory of a run before it begins: of a configuration without its data, and of a trainer that has them."""
