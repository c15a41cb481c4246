"""One linear history per context: claims, turns, settlement, heartbeat."""
