"""What may be removed from a bucket, and removing it beside running hosts."""
