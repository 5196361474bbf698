"""Networks with a leading member axis, their optimisers, and the losses of the paper."""
