"""Runners of epochs: `base.EpochRunner` is the contract; `single`, `streamed` and `pipelined` are independent."""
