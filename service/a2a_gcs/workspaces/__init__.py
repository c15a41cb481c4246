"""Snapshots of a task's working directory, and their safe restoration."""
