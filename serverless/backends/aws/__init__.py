"""Functions of AWS Lambda, called through boto3 (the extra `aws`), and artefacts in S3."""
