"""The function's image: its contents, Dockerfile, build context, and builders."""
