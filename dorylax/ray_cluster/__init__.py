"""A Ray cluster: the section `ray` of a configuration, the connection, nodes and actors. Ray is imported on first use."""
