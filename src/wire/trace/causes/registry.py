"""What a known cause of slow reads is: how it is sought, what changes it, and where the book has more."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from wire.trace.causes.clients import CLIENTS, LIBRARIES, choose_languages

if TYPE_CHECKING:
    from wire.trace.whatif import Edit, Trace

Language = Literal["python", "setting", "shell", "sql", "advice"]
FEW = 6
"""Requests of one cause, below which it is none."""

_PYTHON = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST


@dataclass(frozen=True, slots=True)
class Remedy:
    """Hold what changes a cause, in the words of a client: code to paste, or advice in words."""

    text: str
    language: Language = "python"
    setting: str = ""  # of `--try`, where one acts on this client

    def check(self, where: str) -> None:
        """Refuse code that Python does not read, or that leaves out something.

        Raises
        ------
        ValueError
            If the text is empty, or said to be Python and is not.
        """
        if not self.text:
            raise ValueError(f"{where}: a remedy without text; allowed: code, or words")
        if self.language != "python":
            return
        text = self.text.replace("{block}", "1")
        try:
            compile(text, where, "exec", flags=_PYTHON)
        except SyntaxError as error:
            raise ValueError(
                f"{where}: {self.text!r} is not Python; allowed: code to paste"
            ) from error
        if "..." in text or "…" in text:
            raise ValueError(f"{where}: {self.text!r} leaves out something; allowed: code to paste")


def advise(text: str) -> Remedy:
    """Make a remedy of words, where no line of code helps."""
    return Remedy(text, "advice")


def run_in_shell(text: str) -> Remedy:
    """Make a remedy that is a command."""
    return Remedy(text, "shell")


def set_variable(text: str, setting: str = "") -> Remedy:
    """Make a remedy that is a variable of the environment, which `--try` can set as it is."""
    return Remedy(text, "setting", setting)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Hold what was found of a cause in a trace, before its gain is known."""

    rows: Sequence[int]  # places of the requests that it concerns
    text: str
    edit: Edit | None = None  # what would be asked for without it
    saved_s: float = 0.0  # seconds that it takes, where no edit of requests mends it
    is_bound: bool = False  # whether it gains so much at most, whatever its cause says
    values: Mapping[str, str] = field(default_factory=dict)  # for the braces of a remedy


@dataclass(frozen=True, slots=True)
class Cause:
    """Describe a cause that the trace knows.

    Remedies are looked up by the library's function that the line calls (`open_datatree`, or
    `h5py.` for any of a package), then by the library of that function, then by client, then there
    is the one for a client that is not known. `zarr` are also requests for chunks or metadata of
    Zarr by a client that Zarr reads with, where the line is not known.
    """

    name: str
    title: str
    sentence: str  # after "Your program spends 2.8 of 4.5 s"
    find: Callable[[Trace], Evidence | None]
    see: str  # address in the book
    remedy: Remedy  # for a client that is not known
    clients: Mapping[str, Remedy] = field(default_factory=dict)
    calls: Mapping[str, Remedy] = field(default_factory=dict)
    scope: Literal["phase", "run"] = "phase"
    # 0 is a wrong result and comes first; 2 gains only if less is read, and comes last
    rank: Literal[0, 1, 2] = 1
    least: int = FEW
    is_bound: bool = False  # whether it gains so much at most, for the store or the data have a say
    weight: float = (
        1.0  # how likely it is that the change gains; one that is merely possible is last
    )
    absorbs: Sequence[str] = ()  # causes that are a part of it
    # whether the trace shows that the setting of its remedy can act
    can_try: Callable[[Trace, Evidence], bool] = lambda _trace, _evidence: True

    def check(self) -> None:
        """Refuse a cause that is not complete.

        Raises
        ------
        ValueError
            If a field is empty, a client is not known, or a remedy is no code.
        """
        for name in ("name", "title", "sentence", "see"):
            if not getattr(self, name):
                raise ValueError(f"cause {self.name or '?'}: no {name}; allowed: one of each field")
        if not self.see.partition("#")[0].endswith(".html"):
            raise ValueError(f"{self.name}: see {self.see!r}; allowed: a page of the book")
        if odd := sorted({*self.clients} - {*CLIENTS, *LIBRARIES}):
            raise ValueError(f"{self.name}: {odd[0]}; allowed: {', '.join([*CLIENTS, *LIBRARIES])}")
        remedies = {"": self.remedy, **self.clients, **self.calls}
        for client, remedy in remedies.items():
            remedy.check(f"{self.name} of {client or 'any client'}")

    def remedy_for(self, library_call: str, clients: Iterable[str]) -> Remedy:
        """Return the remedy for a call, or in the words of the first of some clients that has its own.

        Examples
        --------
        A call of a package is known by its function, then by its package:

        >>> cause = Cause("x", "X", "so", lambda trace: None, "x.html", advise("none"),
        ...               {"boto3": advise("boto")}, {"open": advise("by name"), "h5py.": advise("of h5py")})
        >>> [cause.remedy_for(call, ["boto3"]).text for call in ("io.open", "h5py._hl.read", "")]
        ['by name', 'of h5py', 'boto']

        A library of which it is known has no words of another:

        >>> cause.remedy_for("xarray.open_zarr", ["zarr"]).text
        'none'
        """
        package, _, rest = library_call.partition(".")
        function = rest.rpartition(".")[2] or package
        for call in (function, f"{package}."):
            if library_call and call in self.calls:
                return self.calls[call]
        languages = choose_languages(library_call, [*clients])
        return next((self.clients[name] for name in languages if name in self.clients), self.remedy)


def make_registry(causes: Iterable[Cause]) -> dict[str, Cause]:
    """Put causes into one table, in their order; one that is not complete is refused.

    Raises
    ------
    ValueError
        If one is not complete, stands twice, or absorbs one that is not there.
    """
    registry = dict[str, Cause]()
    for cause in causes:
        cause.check()
        if cause.name in registry:
            raise ValueError(f"cause {cause.name} stands twice; allowed: one of each name")
        registry[cause.name] = cause
    for cause in registry.values():
        if odd := sorted({*cause.absorbs} - {*registry}):
            raise ValueError(f"{cause.name} absorbs {odd[0]}; allowed: {', '.join(registry)}")
    return registry
