"""The data plane: tensors between servers and workers, over ZeroMQ with the frames of `dorylax.serverless.wire.frames`."""
