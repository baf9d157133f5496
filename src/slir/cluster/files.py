"""One file on a cluster, tile by tile: a slide, a survey's mosaic, a stack.

Each tile is a task: read with its halo, restored, written beside the output. The client puts tiles together as they
come, so that the output is the file that one machine would have made, in any format, with its sidecar. Planes that one
machine restores whole (`slir.files.restore_file.LARGE`) are one tile.
"""

from __future__ import annotations

import contextlib
import uuid
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from slir import io
from slir.cluster.connection import in_flow, result
from slir.cluster.folder import Folder, Tile, tiles_of
from slir.cluster.process import absolute, release
from slir.cluster.worker import Equip, Kit, decide, lead_model, restore_tile
from slir.errors import SlirWarning
from slir.estimator.tiling import Piece, scale_window, tile_side
from slir.files import jobs, restore_file
from slir.files.jobs import Job, Outcome, Progress
from slir.files.restore_file import Found, PlaneStats, Work
from slir.files.warning_log import about_plane
from slir.io import Picture, Sink, Source
from slir.result import Uncertainty

RETRIES = 2
"""Times that a task is tried again after an error, as disks on a network have their moments."""

Number = tuple[int, int]
"""Of a tile: its plane, and which one of the plane's."""


def run(job: Job, client: Any, *, sidecar: bool = True, progress: Progress | None = None) -> Outcome:
    """`slir.files.jobs.run` on a cluster. Run again after the client died, it restores the tiles that are missing.

    client : a `distributed.Client`, as `slir.cluster.connection.connect` gives it. Its workers see the same disks.
    """
    job = replace(job, threads=job.threads or 1)
    job.check()
    with tiles_of(job, side=_side(job)) as folder:
        there = partial(_restore, client, job, folder)
        return jobs.run(job, sidecar=sidecar, progress=progress, restore=there)


def _side(job: Job) -> int:
    """Of tiles: as on one machine, whatever workers have. What they need is said in the guide."""
    with io.open_source(job.image) as source:
        work = jobs.work_of(replace(job, device=None), source.head, missing=None)
        operator = work.problem.operator(source.size)
        return tile_side(lead_model(work, source), torch.device("cpu"), source.size, operator)


def _restore(
    client: Any, job: Job, folder: Folder, source: Source, sink: Sink, work: Work, progress: Progress | None
) -> Found:
    """In place of `slir.files.restore_file.restore_file`."""
    cut = restore_file.is_cut(source.size, work)
    pieces: list[Piece | None] = [None]
    if cut:
        pieces = [*restore_file.pieces_of(source.size, work, lead_model(work, source), folder.side)]
    wanted = [(plane, number) for plane in range(source.planes) for number in range(len(pieces))]
    done = folder.finished_tiles(wanted)
    notes = (f"{len(done)} of {len(wanted)} tiles were kept from a run that was stopped",) if done else ()
    assembly = _Assembly(folder, sink, work, pieces)
    kit = Kit(uuid.uuid4().hex, absolute(job), work.model, folder, cut, release())
    for number in _tiles(client, kit, wanted, frozenset(done)):
        done.add(number)
        while assembly.taken < len(wanted) and wanted[assembly.taken] in done:
            with about_plane(wanted[assembly.taken][0], source.planes):
                assembly.take(*wanted[assembly.taken])
        if progress is not None:
            progress(len(done), len(wanted), "restoring")
    return Found.of_planes(assembly.found, notes)


def _tiles(client: Any, kit: Kit, wanted: list[Number], done: frozenset[Number]) -> Iterator[Number]:
    """Give tiles as they are there: first those that were, then others as workers restore them."""
    yield from sorted(done)
    if len(done) == len(wanted):
        return
    decisions: dict[int, Any] = {}

    def decision(plane: int) -> Any:
        if plane not in decisions:
            decisions.clear()  # of planes whose tiles are all submitted; their tasks keep them
            decisions[plane] = client.submit(decide, kit.token, plane, pure=False, retries=RETRIES)
        return decisions[plane]

    def submit(place: tuple[int, Number]) -> Any:
        order, (plane, number) = place
        told = decision(plane) if kit.cut else None
        key = f"slir-tile-{kit.token}-{plane}-{number}"
        # In their order, so that they can be put together without waiting for the last of them.
        settings = {"key": key, "pure": False, "retries": RETRIES, "priority": -order}
        return client.submit(restore_tile, kit.token, plane, number, told, **settings)

    due = [(order, number) for order, number in enumerate(wanted) if number not in done]
    with _equip_workers(client, kit):
        for (_, (plane, number)), future in in_flow(client, submit, due):
            result(future, f"{kit.job.image}, tile {number} of plane {plane}")
            yield plane, number


@contextlib.contextmanager
def _equip_workers(client: Any, kit: Kit) -> Iterator[None]:
    """All workers have the kit while the block lasts, also those that join later."""
    plugin = Equip(kit)
    client.register_plugin(plugin)
    try:
        yield
    finally:
        with contextlib.suppress(Exception):  # a cluster that is gone has forgotten it already
            client.unregister_worker_plugin(plugin.name)


@dataclass(eq=False)
class _Assembly:
    """Tiles into the output, in their order. taken: how many. found: σ and the residual of each plane that is whole."""

    folder: Folder
    sink: Sink
    work: Work
    pieces: list[Piece | None]
    taken: int = 0
    found: list[PlaneStats] = field(default_factory=list)
    said: list[dict[str, Any]] = field(default_factory=list)

    def take(self, plane: int, number: int) -> None:
        tile, piece = Tile.load(self.folder.place(plane, number)), self.pieces[number]
        picture = Picture(tile.pixels, channel_axis=-1 if tile.pixels.ndim == 3 else None, alpha=tile.alpha)
        window = (slice(None), slice(None)) if piece is None else scale_window(piece.own, self.work.problem.factor)
        self.sink.write(picture, plane=plane, rows=window[0], cols=window[1])
        for text in tile.said["warnings"]:
            warnings.warn(text, SlirWarning, stacklevel=2)
        if self.work.errors is not None:
            told = Uncertainty(tile.error, tile.said["reason"], tile.low, tile.high)
            self.work.errors(plane, told, None if piece is None else window)
        self.said.append(tile.said)
        self.taken += 1
        if len(self.said) == len(self.pieces):
            self._conclude()

    def _conclude(self) -> None:
        """A plane is whole."""
        pieces = [piece for piece in self.pieces if piece is not None]
        found = [PlaneStats(own["sigma"], own["residual"], own["noise"]) for own in self.said]
        if pieces:
            arrays = [np.array(own[:2]) for own in found]
            spans = self.said[0]["spans"]
            self.found.append(restore_file.plane_totals(arrays, pieces, self.work, spans, found[0].noise))
        else:
            self.found.append(found[0])
        self.said.clear()
