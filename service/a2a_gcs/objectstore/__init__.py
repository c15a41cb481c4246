"""The bucket as the rest of the package sees it: a port, its adapters and its decorators."""
