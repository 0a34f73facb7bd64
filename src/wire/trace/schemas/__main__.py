"""Write the files of all schemas next to this module."""

from pathlib import Path

from wire.trace.schemas import write_schemas

write_schemas(Path(__file__).parent)
