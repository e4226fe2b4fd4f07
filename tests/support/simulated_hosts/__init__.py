"""Hosts, their driver and all that may go wrong between them, in one process and in virtual time."""
