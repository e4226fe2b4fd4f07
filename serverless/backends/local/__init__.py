"""`local`: worker processes on this machine, each a sandbox that stands for a container of a cloud."""
