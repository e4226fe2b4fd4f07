"""What a run leaves behind: its results, and the files of its directory."""
