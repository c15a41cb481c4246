"""The FastAPI host: settings, composition root, routes."""
