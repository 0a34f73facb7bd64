"""HDF5's own S3 driver, in whatever Python has it: it opens files and reads variables on request.

It imports nothing of ours. Questions and answers are lines of JSON; values go to shared memory.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import signal
import sys
from typing import Any

import h5py
import numpy as np

_PR_SET_PDEATHSIG = 1


def open_file(url: str, region: str, keys: list[str], settings: dict[str, int]) -> h5py.File:
    """Open a file with the settings given, and HDF5's own for all others."""
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_fapl_ros3(region.encode(), keys[0].encode(), keys[1].encode())
    if keys[2]:
        access.set_fapl_ros3_token(keys[2].encode())
    if "page_buf_size" in settings:
        access.set_page_buffer_size(settings["page_buf_size"], 0, 0)
    if "rdcc_nbytes" in settings:
        elements, slots, _, preemption = access.get_cache()
        access.set_cache(elements, slots, settings["rdcc_nbytes"], preemption)
    # h5py has no name for the cache of blocks, which came with HDF5 2.2
    set_blocks = getattr(ctypes.CDLL(h5py.h5p.__file__), "H5Pset_fapl_ros3_block_caching", None)
    if "block_nbytes" in settings and set_blocks:
        set_blocks.argtypes = [ctypes.c_int64, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_bool]
        if set_blocks(access.id, settings["block_nbytes"], settings["blocks_nbytes"], True) < 0:
            raise ValueError(f"block_nbytes: {settings['block_nbytes']}")
    return h5py.File(h5py.h5f.open(url.encode(), h5py.h5f.ACC_RDONLY, fapl=access))


def main() -> None:
    """Answer until the other side hangs up; on Linux it ends with that in the middle of a read too."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    memory, offset, file = mmap.mmap(int(sys.argv[1]), 0), 0, None
    answer: dict[str, Any] = {"h5py": h5py.__version__, "HDF5": h5py.version.hdf5_version}
    if not h5py.h5.get_config().ros3:
        answer["failed"] = f"h5py {h5py.__version__} is built without it"
    print(json.dumps(answer), flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        try:
            if "name" in job and file is not None:
                data = file[job["name"]]
                values = np.frombuffer(memory, data.dtype, data.size, offset).reshape(data.shape)
                data.read_direct(values)
                answer = {
                    "dtype": data.dtype.str,
                    "size": data.size,
                    "shape": data.shape,
                    "at": offset,
                }
                offset += -(-values.nbytes // 64) * 64
            elif "url" in job:
                os.environ.update(job.pop("env"))
                file, offset, answer = open_file(**job), 0, {}
            elif file is not None:
                answer = {}
                file.close()
        except Exception as error:  # of whatever kind, it is raised where it was asked
            answer = {"failed": " ".join(f"{type(error).__name__}: {error}".split())}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
