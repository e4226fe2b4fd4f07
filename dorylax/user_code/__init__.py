"""The code of users: classes and functions by reference, and the lines that errors come from."""
