"""Where the runs of a sweep run: in this process, in others of this machine, or as tasks over the nodes of a Ray cluster."""
