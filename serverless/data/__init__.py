"""The data plane: tensors between servers and workers, over ZeroMQ, framed as `dorylax.serverless.wire.frames` says."""
