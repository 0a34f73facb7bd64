"""HDF5 files that lie badly for reading over a wire: how they lie, and their repair.

Nothing here writes to a file that is there: a repair makes a copy.
"""

from helpers.storage.repairs.choices import Repair, list_repairs
from helpers.storage.repairs.inspection import inspect_file
from helpers.storage.repairs.models import record_repaired
from helpers.storage.repairs.recording import LibraryRead, Recording, list_tree, record_reads
from helpers.storage.repairs.repacking import apply_repair, check_out, find_tool
from helpers.storage.repairs.reports import FileReport, Variable
from helpers.storage.repairs.sources import LoggedFile, find_location, open_hdf5, open_source

__all__ = [
    "FileReport",
    "LibraryRead",
    "LoggedFile",
    "Recording",
    "Repair",
    "Variable",
    "apply_repair",
    "check_out",
    "find_location",
    "find_tool",
    "inspect_file",
    "list_repairs",
    "list_tree",
    "open_hdf5",
    "open_source",
    "record_reads",
    "record_repaired",
]
