"""Code generators and the host program."""
