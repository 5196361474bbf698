"""Reading and writing: datasets in every layout, tables, and the results of commands."""
