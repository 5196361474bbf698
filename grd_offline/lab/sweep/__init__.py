"""Many commands as one sweep: a file that names them, a folder for each, and what runs them."""
