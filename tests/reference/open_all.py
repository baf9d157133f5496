"""Opens every file of a folder, reads windows of it and copies it; prints what became of each, a JSON object a line.

Run as `python open_all.py FOLDER COPIES BYTES`: no more bytes than that can be allocated beyond those of the imports.
"""

import json
import resource
import sys
import time
from pathlib import Path


def outcome(path, copy):
    from slir.errors import FileError
    from slir.io import create, open_source

    start = time.process_time()
    kind, text = "read", ""
    try:
        with open_source(path) as source:
            height, width = source.size
            source.read(0, slice(0, min(64, height)), slice(0, min(64, width)))
            source.read(source.planes - 1, slice(-1, None))
            if source.planes * height * width < 1 << 22:
                with create(copy / path.name, source) as sink:
                    for plane in range(source.planes):
                        sink.write(source.read(plane), plane=plane)
    except FileError as error:
        kind, text = "FileError", str(error)
    except BaseException as error:
        kind, text = type(error).__name__, str(error)
    return {"name": path.name, "kind": kind, "text": text, "seconds": time.process_time() - start}


def main():
    folder, copy, limit = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    import astropy.io.fits
    import tifffile
    import zarr

    import slir.io
    from slir.compute import peak_memory

    good = [path for path in sorted(folder.iterdir()) if path.name.startswith("good-")]
    for path in good:  # what is imported late
        outcome(path, copy)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    bound = pages * resource.getpagesize() + limit
    resource.setrlimit(resource.RLIMIT_AS, (bound, bound))
    before = peak_memory()
    for path in sorted(folder.iterdir()):
        print(json.dumps(outcome(path, copy)))
    modules = [module.__name__ for module in (astropy, tifffile, zarr, slir)]
    print(json.dumps({"before": before, "peak": peak_memory(), "modules": modules}))


if __name__ == "__main__":
    main()
