"""`%load_ext wire` in a notebook: ``%%wire`` above a cell shows below it what the cell waited for.

In a kernel of the specification that `wire trace install-kernel` writes, *Python 3 (wire)*, the
gateway is there before the first cell, so that nothing is opened before it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from wire.errors import UserError, convert_system_error
from wire.trace import recording

KERNEL_NAME, KERNEL_TITLE = "python3-wire", "Python 3 (wire)"


def load_extension(shell: Any) -> None:
    """Begin tracing this kernel: ``%%wire`` shows what a cell asked for and waited for."""
    recording.open_session().enter()
    shell.register_magic_function(_run_cell, magic_kind="cell", magic_name="wire")


def unload_extension(shell: Any) -> None:
    """Give the environment back; what was opened meanwhile still goes through the gateway."""
    shell.magics_manager.magics["cell"].pop("wire", None)
    recording.open_session().leave()


def _run_cell(line: str, cell: str) -> None:
    """Run a cell, and show what it waited for; with a name on the line keep it under that name."""
    from IPython import display, get_ipython

    shell, name = get_ipython(), line.strip()
    if name and not name.isidentifier():
        raise UserError("%%wire", name, "nothing, or the name of a variable for the recording")
    number, next_number = _find_cell_number(shell), shell.execution_count
    shell.execution_count = number or next_number  # for the cell's own name, `In [3]`
    try:
        with recording.record() as record:
            result = shell.run_cell(cell, store_history=False)
    finally:
        shell.execution_count = next_number
    if name:
        shell.user_ns[name] = record
    shown = {"text/html": record._repr_html_(), "text/plain": str(record)}
    display.publish_display_data(shown)  # type: ignore[no-untyped-call]
    if result.error_in_exec is not None:
        raise result.error_in_exec


def _find_cell_number(shell: Any) -> int:
    """Find the number of the cell that runs; 0 where it is not known."""
    names = getattr(shell.compile, "_filename_map", {})
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_filename not in names:
        frame = frame.f_back  # type: ignore[assignment]
    return int(names[frame.f_code.co_filename]) if frame is not None else 0


def install_kernel(prefix: Path | None = None) -> Path:
    """Write a kernel specification whose kernels are traced from their start on.

    Parameters
    ----------
    prefix : Path, optional
        Where `share/jupyter/kernels` lies; that of this user by default.

    Returns
    -------
    Path
        Folder of the specification.

    Raises
    ------
    UserError
        If ipykernel is not installed here, or the folder cannot be written.
    """
    try:
        from jupyter_client.kernelspec import KernelSpecManager
        from jupyter_core.paths import jupyter_data_dir
    except ImportError as error:
        raise UserError(
            "wire trace install-kernel", "no ipykernel here", "the environment of a kernel"
        ) from error
    del KernelSpecManager
    data = prefix / "share/jupyter" if prefix else Path(jupyter_data_dir())
    folder = data / "kernels" / KERNEL_NAME
    words = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    specification = {
        "argv": [*words, f"--IPKernelApp.extra_extensions={__package__.partition('.')[0]}"],
        "display_name": KERNEL_TITLE,
        "language": "python",
        "metadata": {"debugger": True},
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "kernel.json").write_text(json.dumps(specification, indent=1) + "\n")
    except OSError as error:
        raise convert_system_error(error) from error
    return folder
