"""Hosts in processes of their own: what each is given, how it lives, and the run that drives them from afar."""
