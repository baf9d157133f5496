"""The paper's experiments, on the reader's own copy of the data: cases, printed figures, peers, a resumable runner.

Nothing here ships pixels. `protocols` reads a data folder, `runner.run` restores every case with every method and
stores one line a result, `tables.render` sets the outcome beside what the paper prints.
"""
