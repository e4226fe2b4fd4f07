"""`ray`: workers on the nodes of a Ray cluster, each an actor (the extra `ray`)."""
