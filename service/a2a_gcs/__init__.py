"""A FastAPI host for A2A agents whose only database is a Google Cloud Storage bucket."""
