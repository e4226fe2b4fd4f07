"""Runners of epochs: `base.EpochRunner` is the contract; `dorylax.trainer.streamed` is a third one, beside its plan."""
