from support.buckets import aws, bucket  # noqa: F401
