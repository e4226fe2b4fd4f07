"""The function's image: what is in it, its Dockerfile and build context, and ways to build it."""
