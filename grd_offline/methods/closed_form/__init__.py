"""The closed form: a sum of effects with Gaussian-process priors, fitted to returns."""
