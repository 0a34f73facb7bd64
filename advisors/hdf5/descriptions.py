"""The layout of an HDF5 file that nobody has at hand, from a few numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from advisors.hdf5.inspection import FileLayout, Read, decode_nbyte_s

REFERENCE_NBYTES = 80
"""Bytes of one reference in a JSON file: key, address, offset and length."""

# Of an index (B-tree, version 1): chunks of a node that is full, and those that stay in it where it
# is split because chunks were appended (H5Pset_btree_ratios: nine tenths)
_MOST_CHUNKS, _NODE_CHUNKS, _NODE_NBYTES = 64, 57, 2096
_HEADER_NBYTES = 512  # that HDF5 reads of an object to find out about it
_LATE_NBYTES = 104  # of attributes that were added to a variable when the file was closed
# Of chunks that grew as they were filled, and so moved, the last lies in a gap that another left:
# as a share of the file, where the records' granule has it
_GAP = 0.9
_DEFLATED = (2, 1)  # shuffle, deflate


def describe_layout(
    *,
    n_chunks: int,
    chunk_nbytes: float,
    n_variables: int = 1,
    n_read: int = 1,
    is_scattered: bool = True,
    touched: Sequence[int] = (),
    value_nbytes: float = 0.0,
) -> FileLayout:
    """Describe a file of variables that are alike, of which some are read.

    Parameters
    ----------
    n_chunks : int
        Stored chunks of each variable.
    chunk_nbytes : float
        Bytes of each of them as it is stored.
    n_variables, n_read : int
        Variables of the file, and how many of them are read, one after the other.
    is_scattered : bool
        Whether variables were appended in turn, so that each lies all over the file; else each
        lies in one piece.
    touched : sequence of int
        Chunks of a variable that are read, as numbers in the order in which they lie; all by
        default.
    value_nbytes : float
        Bytes in memory of what is decoded of one variable; as stored by default, and then deflate
        takes no time.

    Examples
    --------
    Two of four variables, each in ten chunks of 1 MB:

    >>> layout = describe_layout(n_chunks=10, chunk_nbytes=1e6, n_variables=4, n_read=2)
    >>> [len(chunks) for chunks in layout.chunks], round(layout.file_nbytes / 1e6)
    ([10, 10], 40)
    >>> [round(read.offset / 1e6) for read in layout.chunks[0][:3]]
    [0, 4, 8]
    """
    nbytes, front = round(chunk_nbytes), 2048 + _HEADER_NBYTES * n_variables
    n_nodes = -(-n_chunks // _NODE_CHUNKS)
    piece = n_chunks * nbytes + n_nodes * _NODE_NBYTES
    step, apart = (n_variables * nbytes, nbytes) if is_scattered else (nbytes, piece)
    file_nbytes = front + n_variables * piece

    def locate(variable: int, chunk: int) -> int:
        if is_scattered and chunk == n_chunks - 1 > _MOST_CHUNKS:
            chunk = int(_GAP * n_chunks)
        return min(front + variable * apart + chunk * step, file_nbytes)

    def read_variable(variable: int) -> Iterator[Read]:
        root = front + variable * apart  # of the index, made with the variable
        yield Read(2048 + _HEADER_NBYTES * variable, _HEADER_NBYTES)
        yield Read(2048 - _HEADER_NBYTES, _HEADER_NBYTES)  # of its group
        if is_scattered:
            yield Read(file_nbytes - _LATE_NBYTES, _LATE_NBYTES)
        yield Read(root, _NODE_NBYTES)
        node = -1  # a full node is split when the chunk comes for which it has no room
        for chunk in touched or range(n_chunks):
            if n_chunks > _MOST_CHUNKS and chunk // _NODE_CHUNKS != node:
                node = chunk // _NODE_CHUNKS
                made = min(_MOST_CHUNKS + _NODE_CHUNKS * (max(node, 1) - 1), n_chunks - 1)
                yield Read(locate(variable, made), _NODE_NBYTES)
            yield Read(locate(variable, chunk), nbytes, is_metadata=False)

    headers = (Read(2048 + _HEADER_NBYTES * n, _HEADER_NBYTES) for n in range(n_variables))
    opened = (Read(0, 96), *headers)
    read = tuple(tuple(read_variable(variable)) for variable in range(n_read))
    decoded = value_nbytes or len(touched or range(n_chunks)) * nbytes
    return FileLayout(
        opened,
        read,
        file_nbytes,
        references_nbytes=REFERENCE_NBYTES * n_variables * n_chunks,
        decode_s=n_read * decoded * decode_nbyte_s(_DEFLATED if value_nbytes else ()),
    )
