"""A Ray cluster: the section `ray` of a configuration, and the connection to it. Ray is loaded when it is needed."""
