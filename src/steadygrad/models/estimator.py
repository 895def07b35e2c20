"""The habits of scikit-learn, without the library."""

from __future__ import annotations

import inspect
from typing import Any, Self


class Estimator:
    """What is given to the constructor is kept under the same name: `get_params`, `set_params` and `sklearn.base.clone` work."""

    @classmethod
    def _names(cls) -> list[str]:
        return list(inspect.signature(cls).parameters)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments. `deep` changes nothing: no argument is an estimator itself."""
        return {name: getattr(self, name) for name in self._names()}

    def set_params(self, **parameters: Any) -> Self:
        """Start over with some arguments changed: what was learned is forgotten."""
        unknown = sorted(set(parameters) - set(self._names()))
        if unknown:
            raise ValueError(f"{type(self).__name__} has no parameter {', '.join(unknown)}; it has {', '.join(self._names())}.")
        self.__dict__ = type(self)(**{**self.get_params(), **parameters}).__dict__
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.get_params().items())})"
