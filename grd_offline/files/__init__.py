"""What is written to disk and read back, with care."""
