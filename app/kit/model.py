"""The base of every model of the API: pydantic compiles one when it is first needed, not when it is declared.

A start declares five hundred, and most services need a few of them before they end.
"""

from typing import Any

from pydantic import BaseModel


class Model(BaseModel):
    """A model whose validators are made with its first value, once, by whichever thread comes first.

    Rules:
    - only the declaration defers: an adapter that FastAPI makes of a model is whole when it is made;
    - pydantic compiles under a lock of its own (2.14 and later).
    """

    def __init_subclass__(cls, **given: Any) -> None:
        """Before pydantic would compile it."""
        super().__init_subclass__(**given)
        cls.model_config["defer_build"] = True

    @classmethod
    def __pydantic_init_subclass__(cls, **given: Any) -> None:
        """After that."""
        super().__pydantic_init_subclass__(**given)
        del cls.model_config["defer_build"]
