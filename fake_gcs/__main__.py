"""`python -m fake_gcs`."""

from fake_gcs.cli import main

main()
