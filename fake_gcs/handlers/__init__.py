"""The operations, one module per kind: each handler takes the state and a call, and answers a reply."""
