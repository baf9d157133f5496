"""More than one machine, by Dask (extra [dask]).

connection.py   a cluster by its name, and work that flows through it
arrays.py       arrays of Dask, which stay lazy; blocks.py: what their tasks do
files.py        one large file, tile by tile; worker.py: what workers do; folder.py: tiles that are done
batch.py        many files, each one task
process.py      a worker's process: memory, GPU, release

Nothing here is imported unless a cluster or an array of Dask is there.
"""
