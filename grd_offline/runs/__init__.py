"""What training online and training offline share: the loop, the folder of a run, its process."""
