"""The part that training online and offline share: the loop, the folder of a run, and its
process."""
