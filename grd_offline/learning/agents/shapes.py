"""Names of the shapes on signatures: for reading and for the test run, which checks them.

Nothing imports this module while the package is used, so that it does not need jaxtyping.
"""

from jaxtyping import Float
from torch import Tensor

Members = Float[Tensor, "member"]
Steps = Float[Tensor, "member batch"]
States = Float[Tensor, "member batch state"]
Actions = Float[Tensor, "member batch action"]
Values = Float[Tensor, "member critic batch"]
CriticLosses = Float[Tensor, "member critic"]
