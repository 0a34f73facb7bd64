"""Read variables of an HDF5 file by references to its chunks, which lie next to it as JSON."""

import sys
import time
import warnings

import zarr
from obspec_utils.registry import ObjectStoreRegistry
from obstore.store import S3Store
from virtualizarr.parsers import KerchunkJSONParser

url, *names = sys.argv[1:]
bucket = "/".join(url.split("/")[:3])
registry = ObjectStoreRegistry({bucket: S3Store.from_url(bucket)})
warnings.filterwarnings("ignore", "Numcodecs codecs are not in the Zarr version 3")

began_s = time.time()
store = KerchunkJSONParser()(url.removesuffix(".h5") + ".json", registry)
group = zarr.open_group(store, mode="r", zarr_format=3)
values = [group[name.rpartition("/")[2]][:] for name in names]  # type: ignore[index]
print(began_s, time.time())
