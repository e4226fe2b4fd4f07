"""Ways to run an epoch: `base.EpochRunner` is the contract; `single` and `pipelined` do not know each other."""
