"""Files by name in a folder of this machine or under a prefix of S3: listed, fetched, put and deleted in the same way."""
