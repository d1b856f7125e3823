"""What a user does with Lynx on a cluster, from the first command to the last, and what must come of it."""
