"""The settings of a method or dataset that ships with the package, without importing its module.

A method's module needs torch, which takes seconds and 700 MB; its class `Config` needs none of it.
So that settings can be shown and checked at once, and are still written in one place, the class is
taken out of the module's source and executed alone, with those statements that it refers to.
"""

import ast
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any


@cache
def config_class(target: str) -> Any:
    """The class `Config` of `module:Class`, or of the class that it is derived from."""
    module, _, name = target.partition(":")
    return _Source(module).config(name)


class _Source:
    """A module's statements, by the names that they define; each is executed when it is needed."""

    def __init__(self, module: str) -> None:
        spec = find_spec(module)
        assert spec is not None
        assert spec.origin is not None
        self.path = spec.origin
        self.values: dict[str, Any] = {"__name__": module}
        tree = ast.parse(Path(self.path).read_text(encoding="utf-8"))
        self.statements = {name: each for each in tree.body for name in _defined_by(each)}

    def config(self, name: str) -> Any:
        """The class `Config` of a class that is defined here, or imported from this package."""
        statement = self.statements.get(name)
        if isinstance(statement, ast.ImportFrom):
            if not str(statement.module).startswith("unseen."):
                return None
            (alias,) = (each for each in statement.names if name in {each.name, each.asname})
            return config_class(f"{statement.module}:{alias.name}")
        if not isinstance(statement, ast.ClassDef):
            return None
        for inner in statement.body:
            if "Config" in _defined_by(inner):
                return self._execute(inner)["Config"]
        bases = [base.id for base in statement.bases if isinstance(base, ast.Name)]
        return next((found for base in bases if (found := self.config(base))), None)

    def _execute(self, statement: ast.stmt) -> dict[str, Any]:
        """What the statement defines, once all names in it are known."""
        for node in ast.walk(statement):
            if isinstance(node, ast.Attribute) and node.attr == "Config":
                assert isinstance(node.value, ast.Name)
                owner = node.value.id
                self.values[owner] = SimpleNamespace(Config=self.config(owner))
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                self._define(node.id)
        defined: dict[str, Any] = {}
        exec(compile(ast.Module([statement], []), self.path, "exec"), self.values, defined)
        return defined

    def _define(self, name: str) -> None:
        if name not in self.values and name in self.statements:
            self.values |= self._execute(self.statements[name])


def _defined_by(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name for alias in statement.names]
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return [statement.name]
    targets = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
    return [node.id for node in targets if isinstance(node.ctx, ast.Store)]
