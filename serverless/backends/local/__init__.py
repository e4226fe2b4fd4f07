"""`local` backend: worker processes on this machine, each a sandbox in place of a cloud container."""
