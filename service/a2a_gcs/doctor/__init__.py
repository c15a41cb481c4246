"""What people get wrong with a bucket and the hosts over it: each check by itself, with how to fix what it finds."""
