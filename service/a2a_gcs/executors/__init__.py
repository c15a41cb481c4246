"""What runs an agent in its workspace, and the agents that come along."""
