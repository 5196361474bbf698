"""A model of the next observation that other code can import: predict, sample, score, save, load.

Each state dimension is predicted from its parents alone, as the causal masks have them:

    s_{i,t+1} = sum_c f_ic(x_c) + sum_{a,b} f_iab(x_a, x_b) + residual,    x = (s_t, a_t)

over the parents c and over the pairs (a, b) of parents for which the data speak. Each f is a
weighted sum of one-dimensional features or of products of two of them. The features of an input
are its value and smooth curves over the range of the data, kept as a table of values at nodes;
outside that range the curves are held at their ends and only the value itself goes on. The
residual is Gaussian, or a mixture of three Gaussians where that predicts held-out data better.

`fit_dynamics_model` fits within any masks; with masks of ones it is the model that knows no graph,
and `compare_masks` gives the likelihood of held-out transitions under both. A saved model is
numbers and text: loading one runs no code from the file and checks everything that it reads.
"""

from grd_offline.additive.dynamics.fit import compare_masks, fit_dynamics_model
from grd_offline.additive.dynamics.model import DynamicsModel

__all__ = ["DynamicsModel", "compare_masks", "fit_dynamics_model"]
