"""Files in, files out: what a command means, restoring file by file, and what is written beside the results."""
