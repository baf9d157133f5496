"""Models <-> safetensors files: banks and maps as tensors, all else as JSON in the header. Never pickle."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

import slir
from slir.bank import Bank
from slir.compute import pick_device
from slir.descriptors import DctDescriptor
from slir.errors import FileError
from slir.io.atomic import whole_file
from slir.io.networks import pack_camera, pack_network, unpack_camera, unpack_network
from slir.io.trust import pack_examples, pack_trust, unpack_examples, unpack_trust
from slir.kernel.cell_ridge import CellRidgeStage, Cells
from slir.kernel.learnt import LearntKernel
from slir.kernel.network import KernelNetwork
from slir.kernel.noise_level import NoiseNetwork
from slir.kernel.stage import KernelStage
from slir.losses import Euclidean, Huber, Loss, Squared
from slir.model import AnyStage, Model, Prior, Stage
from slir.weights import WEIGHTS

FORMAT, KERNEL_FORMAT = "slir-model", "slir-kernel"
VERSION = 2
Made = TypeVar("Made")
_MOST = {bool: 2, int: 2**63, float: 1e30}
_LOSSES: dict[str, type[Loss]] = {"squared": Squared, "euclidean": Euclidean, "huber": Huber}


def write_model(path: str | Path, model: Model) -> None:
    """Write a model whole or not at all. Banks shared by stages are stored once."""
    priors: list[Prior] = []
    for stage in model.stages:
        if isinstance(stage, Stage) and not any(stage.prior is prior for prior in priors):
            priors.append(stage.prior)
    banks: list[Bank] = []
    for prior in priors:
        if not any(prior.bank is bank for bank in banks):
            banks.append(prior.bank)
    tensors: dict[str, Tensor] = {}
    for number, bank in enumerate(banks):
        for name in ("seen", "clean", "source"):
            tensors[f"bank{number}.{name}"] = getattr(bank, name).detach().cpu().contiguous()
    networks = [stage.network for stage in model.stages if isinstance(stage, KernelStage)]
    header: dict[str, Any] = {
        "banks": [bank.provenance for bank in banks],
        "priors": [
            {
                "bank": next(i for i, bank in enumerate(banks) if bank is prior.bank),
                "view": prior.view,
                "descriptor": prior.descriptor.settings(),
                "weights": prior.weights.settings(),
            }
            for prior in priors
        ],
        "stages": [_pack_stage(stage, priors, tensors) for stage in model.stages],
        "splitting": model.splitting,
        "provenance": model.provenance,
        "trust": pack_trust(model.trust, tensors),
        "examples": pack_examples(model.examples, tensors),
    }
    if networks:
        header["network"] = pack_network(networks[0], tensors)
    _write(path, FORMAT, header, tensors)


def write_kernel(path: str | Path, kernel: LearntKernel) -> None:
    """Write a learnt kernel, with all that is known of its errors, whole or not at all."""
    tensors: dict[str, Tensor] = {}
    header = {
        "network": pack_network(kernel.network, tensors),
        "noise": kernel.noise and pack_network(kernel.noise, tensors),
        "camera": kernel.camera and pack_camera(kernel.camera, kernel.network, tensors),
        "trust": {task: pack_trust(trust, tensors, f"trust.{task}") for task, trust in kernel.trust.items()},
        "examples": pack_examples(kernel.examples, tensors),
        "provenance": kernel.provenance,
    }
    _write(path, KERNEL_FORMAT, header, tensors)


def load_kernel(path: str | Path) -> LearntKernel:
    """Read a learnt kernel that `write_kernel` wrote, onto the CPU."""
    tensors, header = _read(path, KERNEL_FORMAT, "cpu")
    with _making_sense(path):
        trust = {task: unpack_trust(own, tensors, f"trust.{task}") for task, own in header["trust"].items()}
        network = unpack_network(KernelNetwork, header["network"], tensors)
        return LearntKernel(
            network,
            {task: own for task, own in trust.items() if own is not None},
            unpack_examples(header["examples"], tensors),
            header["provenance"],
            unpack_network(NoiseNetwork, header["noise"], tensors) if header.get("noise") else None,
            unpack_camera(header["camera"], network, tensors) if header.get("camera") else None,
        )


def is_kernel(path: str | Path) -> bool:
    """Whether a file is one of `write_kernel`, and not a model."""
    try:
        with safe_open(str(path), framework="pt") as file:
            return (file.metadata() or {}).get("format") == KERNEL_FORMAT
    except (SafetensorError, OSError):
        return False  # reading it gives the reason


def _write(path: str | Path, kind: str, header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    metadata = {"format": kind, "version": str(VERSION), "slir": slir.__version__, "model": json.dumps(header)}
    contents = _canonical(save(tensors, metadata=metadata))
    with whole_file(path) as temporary:
        temporary.write_bytes(contents)


def _canonical(contents: bytes) -> bytes:
    """The same safetensors file with its metadata in order: the writer leaves that to chance, run by run.

    The format: eight bytes that say how long the JSON header is, the header padded with spaces, the tensors.
    """
    end = 8 + int.from_bytes(contents[:8], "little")
    header = json.loads(contents[8:end])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + contents[end:]


def _pack_stage(stage: AnyStage, priors: list[Prior], tensors: dict[str, Tensor]) -> dict[str, Any]:
    """The settings of a stage; adds its tensors."""
    if isinstance(stage, KernelStage):
        return {"kind": "kernel", "share": stage.share, "following": stage.following}
    if isinstance(stage, CellRidgeStage):
        tensors["ridge.centres"] = stage.cells.centres.cpu().contiguous()
        tensors["ridge.maps"] = stage.maps.half().cpu().contiguous()  # `slir.fit` rounds them so
        return {"kind": "cell ridge"}
    assert isinstance(stage, Stage)  # there are these three
    names = ("gamma", "beta", "solver", "stride", "tol", "max_steps")
    own: dict[str, Any] = {name: getattr(stage, name) for name in names}
    own["prior"] = next(i for i, prior in enumerate(priors) if prior is stage.prior)
    own["loss"] = {"kind": stage.loss.name, **asdict(stage.loss)}  # type: ignore[call-overload]
    return own


def load(path: str | Path, *, device: str | None = None) -> Model:
    """Read a model that `Model.save` wrote."""
    tensors, header = _read(path, FORMAT, str(pick_device(device)))
    with _making_sense(path):
        return _model(tensors, header)


def _read(path: str | Path, kind: str, device: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        with _making_sense(path), safe_open(str(path), framework="pt", device=device) as file:
            metadata = file.metadata() or {}
            _check_header(path, kind, metadata)
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            header = json.loads(metadata["model"])
            _check_provenance(header["provenance"])
            return tensors, header
    except FileNotFoundError as error:
        raise FileError(path, "there is no such model file", "Check the path, or make one with slir fit.") from error
    except (SafetensorError, OSError) as error:
        if isinstance(error, FileError):
            raise
        reason = f"it cannot be read as a model ({error})"
        raise FileError(path, reason, "It may be truncated or of another kind: copy or fit it again.") from error


@contextmanager
def _making_sense(path: str | Path) -> Iterator[None]:
    """Whatever a file's contents lead to becomes an error that names the file."""
    try:
        yield
    except (OSError, SafetensorError):
        raise
    except Exception as error:
        reason = f"its contents do not make a model ({type(error).__name__}: {error})"
        raise FileError(path, reason, "It may be damaged: copy or fit it again.") from error


def _check_header(path: str | Path, kind: str, metadata: dict[str, str]) -> None:
    if metadata.get("format") != kind:
        raise FileError(path, "it is a safetensors file, but not a slir model", "Pass a file that slir fit wrote.")
    if metadata.get("version") != str(VERSION):
        reason = f"it has format version {metadata.get('version')}, this slir {slir.__version__} reads {VERSION}"
        remedy = f"Install the slir that wrote it ({metadata.get('slir')}), or fit it again."
        raise FileError(path, reason, remedy)


def _check_provenance(found: Any) -> None:
    """What is asked of it later on: an object, in which the operator or the family of them is one too."""
    family = found.get("family", found)
    if not isinstance(family, dict) or not isinstance(family.get("operator", {}), dict):
        raise TypeError("its provenance does not name an operator")


def _typed(kind: type[Made], **settings: Any) -> Made:
    """An object made from JSON, whose values must have the types that its class declares, and fit into a tensor."""
    types = get_type_hints(kind)
    for name, value in settings.items():
        declared = types[name] | int if isinstance(0.0, types[name]) else types[name]
        if not isinstance(value, declared) or (isinstance(value, int | float) and not abs(value) < _MOST[type(value)]):
            raise TypeError(f"{kind.__name__}.{name} is {value!r:.40}")
    return kind(**settings)


def _model(tensors: dict[str, Any], header: dict[str, Any]) -> Model:
    for provenance in header["banks"]:
        _check_provenance(provenance)
    banks = [
        Bank(provenance=provenance, **{name: tensors[f"bank{number}.{name}"] for name in ("seen", "clean", "source")})
        for number, provenance in enumerate(header["banks"])
    ]
    priors = []
    for own in header["priors"]:
        described = {name: own["descriptor"][name] for name in ("window", "keep_dc")}
        descriptor = _typed(DctDescriptor, **described)
        settings = dict(own["weights"])
        weights = _typed(WEIGHTS[settings.pop("kind")], **settings)
        priors.append(Prior(banks[own["bank"]], descriptor, weights, own["view"]))
    stages: list[AnyStage] = []
    network = unpack_network(KernelNetwork, header["network"], tensors) if "network" in header else None
    for own in header["stages"]:
        own = dict(own)
        kind = own.pop("kind", "paper")
        if kind == "cell ridge":
            stages.append(CellRidgeStage(Cells(tensors["ridge.centres"]), tensors["ridge.maps"].float()))
            continue
        if kind == "kernel":
            if network is None:
                raise ValueError("it has a stage of a learnt kernel, but no network")
            stages.append(_typed(KernelStage, network=network, **own))
            continue
        settings = dict(own.pop("loss"))
        loss = _typed(_LOSSES[settings.pop("kind")], **settings)
        stages.append(_typed(Stage, prior=priors[own.pop("prior")], loss=loss, **own))
    trust, examples = unpack_trust(header.get("trust"), tensors), unpack_examples(header.get("examples"), tensors)
    return Model(tuple(stages), header["provenance"], header["splitting"], trust, examples)
