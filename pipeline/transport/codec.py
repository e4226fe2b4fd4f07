"""Converts payloads between processes to plain documents with arrays, and back. Nothing is pickled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

import jax
import numpy as np

from dorylax.errors import RunError
from dorylax.jax_internals import is_key

_PLAIN = frozenset({type(None), bool, int, float, str})


@final
class Codec:
    """Encodes and decodes payloads: numbers, texts, arrays, tuples, lists, mappings with text keys, and given types.

    Decoded arrays are NumPy arrays. NumPy scalars become arrays without axes; random keys stay keys.

    Args:
        types: Supported named tuples, equal on both sides.
        trees: Structure of the pytree in a field of these, by the field's name.
    """

    def __init__(self, types: Sequence[type[Any]], trees: Mapping[str, Any]) -> None:
        self._types = {one.__name__: one for one in types}
        self._trees = dict(trees)

    def encode(self, payload: Any) -> tuple[Any, list[np.ndarray]]:
        """Return the payload as a document (None, numbers, texts, lists, mappings with text keys) and its arrays.

        Raises:
            RunError: The payload holds an unsupported type.
        """
        arrays: list[np.ndarray] = []
        return self._write(payload, arrays), arrays

    def decode(self, document: Any, arrays: Sequence[np.ndarray]) -> Any:
        """Return the payload of a document and its arrays.

        Raises:
            RunError: The document is invalid, or the arrays do not match it.
        """
        try:
            return self._read(document, arrays)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise RunError(f"a message cannot be read: {type(error).__name__}: {error}") from error

    def _write(self, value: Any, arrays: list[np.ndarray]) -> Any:
        kind = type(value)
        if kind in _PLAIN:  # the very types: np.float64 is a float
            return value
        if kind is np.ndarray:
            arrays.append(value)
            return {"a": len(arrays) - 1}
        if self._types.get(kind.__name__) is kind:
            fields = (self._write_field(*field, arrays) for field in zip(kind._fields, value, strict=True))
            return {"n": [kind.__name__, *fields]}
        if kind is list:
            return [self._write(item, arrays) for item in value]
        if kind is tuple:
            return {"t": [self._write(item, arrays) for item in value]}
        if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
            return {"d": {key: self._write(item, arrays) for key, item in value.items()}}
        if isinstance(value, np.generic | jax.Array):
            return self._write_array(value, arrays)
        raise RunError(f"{kind.__module__}.{kind.__qualname__} cannot travel between processes")

    def _write_field(self, name: str, value: Any, arrays: list[np.ndarray]) -> Any:
        if name not in self._trees or value is None:
            return self._write(value, arrays)
        leaves, structure = jax.tree.flatten(value)
        if structure != self._trees[name]:
            raise RunError(f"{name} must be {self._trees[name]}, got {structure}")
        return [self._write(leaf, arrays) for leaf in leaves]

    def _write_array(self, value: Any, arrays: list[np.ndarray]) -> Any:
        number = len(arrays)
        if is_key(value):
            arrays.append(np.asarray(jax.random.key_data(value)))
            return {"k": [str(jax.random.key_impl(value)), number]}
        arrays.append(np.asarray(value))
        return {"a": number}

    def _read(self, document: Any, arrays: Sequence[np.ndarray]) -> Any:
        if isinstance(document, list):
            return [self._read(item, arrays) for item in document]
        if not isinstance(document, dict):
            return document
        ((tag, content),) = document.items()
        match tag:
            case "a":
                return arrays[content]
            case "k":
                return jax.random.wrap_key_data(arrays[content[1]], impl=content[0])
            case "t":
                return tuple(self._read(item, arrays) for item in content)
            case "d":
                return {key: self._read(item, arrays) for key, item in content.items()}
            case "n":
                kind = self._types[content[0]]
                return kind(
                    *(self._read_field(*field, arrays) for field in zip(kind._fields, content[1:], strict=True))
                )
        raise ValueError(f"unknown tag {tag!r}")

    def _read_field(self, name: str, document: Any, arrays: Sequence[np.ndarray]) -> Any:
        found = self._read(document, arrays)
        return found if name not in self._trees or found is None else jax.tree.unflatten(self._trees[name], found)
