"""What keeps a deployment from being made, seen or taken away."""

from __future__ import annotations

from typing import final

from dorylax.errors import DorylaxError


@final
class DeployError(DorylaxError, RuntimeError):
    """Something that AWS, this machine or the user stands in the way of; its text is one line for the user.

    Attributes:
        user_error: whether another command would do, and not another try.
    """

    def __init__(self, text: str, *, user_error: bool = False) -> None:
        self.user_error = user_error
        super().__init__(text)
