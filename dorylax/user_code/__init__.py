"""What the user wrote: classes and functions that a name leads to, and the line that an error comes from."""
