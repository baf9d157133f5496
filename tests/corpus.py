"""A corpus of small files of every format, dtype, colour layout and kind of metadata, made by others' writers.

`CASES` maps a name to a function that writes the file, or folder, of that name into a folder and gives its path.
"""

import itertools
import json
import struct
import zlib
from io import BytesIO

import numpy as np
import tifffile
import zarr
from astropy.io import fits
from PIL import Image, ImageCms, TiffImagePlugin

HEIGHT, WIDTH = 37, 45  # neither divides by the sides of tiles and bands
CHANNELS = {"grey": 1, "grey+alpha": 2, "RGB": 3, "RGBA": 4}
TIFF_DTYPES = ("uint8", "uint16", "uint32", "int8", "int16", "int32", "float16", "float32", "float64")
ICC = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
XMP = (
    b"<?xpacket begin='\xef\xbb\xbf' id='W5M0MpCehiHzreSzNTczkc9d'?><x:xmpmeta xmlns:x='adobe:ns:meta/'>"
    b"<rdf:RDF xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#'/></x:xmpmeta><?xpacket end='w'?>"
)
TEXT = {"Title": "a river", "Author": "Jürgen ☃"}
CASES = {}


def case(name):
    """Enter a function under a name."""

    def enter(make):
        assert name not in CASES, name
        CASES[name] = make
        return make

    return enter


def noise(channels=1, dtype="uint8", seed=0, size=(HEIGHT, WIDTH)):
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        return (1000 * rng.standard_normal((*size, channels))).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, (*size, channels), dtype=dtype, endpoint=True)


def ramp(channels):
    """Smooth pixels, which survive lossy compression."""
    down, across = np.mgrid[:HEIGHT, :WIDTH]
    planes = [128 + 100 * np.sin(0.05 * down * (k + 1) + 0.03 * across) for k in range(channels)]
    return np.stack(planes, -1).astype(np.uint8)


def exif(order="<"):
    """A block as cameras write it: orientation, resolution, EXIF and GPS directories, a maker's note."""
    tags = Image.Exif()
    tags.endian = order
    tags[0x0112], tags[0x010F], tags[0x0110], tags[0x0132] = 6, "Maker", "Model 3", "2020:01:02 03:04:05"
    tags[0x011A], tags[0x011B], tags[0x0128] = 300.0, 200.0, 2
    inner = tags.get_ifd(0x8769)
    inner[0x829A], inner[0x8827], inner[0xA002], inner[0xA003] = 0.004, 400, WIDTH, HEIGHT
    inner[0x927C] = bytes(range(100, 160))
    inner[0xA005] = {1: "R98", 2: b"0100"}
    places = tags.get_ifd(0x8825)
    places[1], places[2] = "N", (48.0, 51.0, 29.5)
    return tags.tobytes()[6:]


# --- PNG -----------------------------------------------------------------------------------------------------------


def png_bytes(planes, chunks=(), filters=0):
    """A PNG file put together here: 16 bits too, which Pillow does not write."""
    height, width, channels = planes.shape
    colour = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    header = struct.pack(">IIBBBBB", width, height, 8 * planes.dtype.itemsize, colour, 0, 0, 0)
    rows = planes.astype(planes.dtype.newbyteorder(">")).reshape(height, -1).view(np.uint8)
    body = zlib.compress(np.concatenate([np.full((height, 1), filters, np.uint8), rows], axis=1).tobytes())
    parts = [(b"IHDR", header), *chunks, (b"IDAT", body), (b"IEND", b"")]
    packed = (struct.pack(">I", len(b)) + k + b + struct.pack(">I", zlib.crc32(k + b)) for k, b in parts)
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


PNG_CHUNKS = {
    "plain": [],
    "icc": [(b"iCCP", b"sRGB\0\0" + zlib.compress(ICC))],
    "exif": [(b"eXIf", exif())],
    "resolution": [(b"pHYs", struct.pack(">IIB", 11811, 5906, 1))],
    "aspect": [(b"pHYs", struct.pack(">IIB", 2, 1, 0))],
    "xmp": [(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + XMP)],
    "text": [(b"tEXt", b"Title\0a river"), (b"iTXt", "Author\0\0\0\0\0Jürgen ☃".encode())],
    "private": [(b"prVt", b"first"), (b"prVt", b"second"), (b"tIME", bytes([7, 208, 1, 2, 3, 4, 5]))],
    "colours": [(b"gAMA", struct.pack(">I", 45455)), (b"cICP", bytes([9, 16, 0, 1]))],
}
PNG_CHUNKS["all"] = list(itertools.chain(*(PNG_CHUNKS[key] for key in ("icc", "exif", "resolution", "xmp", "text"))))

for dtype, (layout, channels) in itertools.product(("uint8", "uint16"), CHANNELS.items()):
    for kind in ("plain", "all") if (dtype, layout) != ("uint16", "RGB") else PNG_CHUNKS:

        @case(f"{dtype}-{layout}-{kind}.png")
        def _(path, dtype=dtype, channels=channels, kind=kind):
            path.write_bytes(png_bytes(noise(channels, dtype), PNG_CHUNKS[kind]))


# --- JPEG and WebP -------------------------------------------------------------------------------------------------

BLOCKS = {
    "plain": {},
    "icc": {"icc_profile": ICC},
    "exif": {"exif": b"Exif\0\0" + exif()},
    "exif-MM": {"exif": b"Exif\0\0" + exif(">")},
    "xmp": {"xmp": XMP},
    "all": {"icc_profile": ICC, "exif": b"Exif\0\0" + exif(), "xmp": XMP},
}
JPEG_BLOCKS = {**BLOCKS, "resolution": {"dpi": (300, 200)}, "comment": {"comment": b"a slow river"}}

IPTC = b"\x1c\x02\x78\0\x07a river" + b"\x1c\x02\x19\0\x05water"
PHOTOSHOP = b"Photoshop 3.0\x008BIM\x04\x04\0\0" + struct.pack(">I", len(IPTC)) + IPTC + b"\0" * (len(IPTC) % 2)
LONG_XMP = b"http://ns.adobe.com/xmp/extension/\0" + b"0" * 32 + struct.pack(">II", 5, 0) + b"<a/>"
JPEG_BLOCKS["iptc"] = {
    "extra": b"".join(
        bytes([0xFF, mark]) + struct.pack(">H", 2 + len(body)) + body
        for mark, body in ((0xED, PHOTOSHOP), (0xE1, LONG_XMP))
    )
}

for layout, kind in itertools.product(("grey", "RGB"), JPEG_BLOCKS):

    @case(f"{layout}-{kind}.jpg")
    def _(path, layout=layout, kind=kind):
        Image.fromarray(ramp(CHANNELS[layout]).squeeze()).save(path, quality=95, subsampling=0, **JPEG_BLOCKS[kind])


for layout, kind, how in itertools.product(("RGB", "RGBA"), BLOCKS, ("lossless", "lossy")):

    @case(f"{layout}-{kind}-{how}.webp")
    def _(path, layout=layout, kind=kind, how=how):
        planes = noise(CHANNELS[layout]) if how == "lossless" else ramp(CHANNELS[layout])
        options = {"lossless": True, "exact": True} if how == "lossless" else {"quality": 95}
        Image.fromarray(planes).save(path, **options, **BLOCKS[kind])


for kind in ("plain", "icc", "exif", "xmp", "all"):
    for layout in ("RGB", "RGBA"):

        @case(f"{layout}-{kind}.avif")
        def _(path, layout=layout, kind=kind):
            image = Image.fromarray(ramp(CHANNELS[layout]))
            image.save(path, quality=90, subsampling="4:4:4", max_threads=1, **BLOCKS[kind])


for layout in ("grey", "RGB"):

    @case(f"{layout}.bmp")
    def _(path, layout=layout):
        Image.fromarray(noise(CHANNELS[layout]).squeeze()).save(path, dpi=(300, 200))


# --- TIFF ----------------------------------------------------------------------------------------------------------

PHOTOMETRIC = {"grey": "minisblack", "grey+alpha": "minisblack", "RGB": "rgb", "RGBA": "rgb"}
TIFF_META = {
    "iccprofile": ICC,
    "resolution": (1234.5, 617.25),
    "resolutionunit": "CENTIMETER",
    "description": "Fluß, a river".encode(),
    "software": "microscope 3",
    "datetime": "2020:01:02 03:04:05",
    "extratags": [
        (274, 3, 1, 6, True),
        (700, 1, len(XMP), XMP, True),
        (315, 2, 0, "A. N. Other", True),
        (65001, 12, 3, (1.5, 2.5, -3.25), True),  # a private tag that nobody knows
        (65002, 7, 5, b"\0\1\2\3\4", True),
    ],
}


def tiff(path, planes, **how):
    channels = planes.shape[2] if planes.ndim == 3 else 1
    layout = {count: name for name, count in CHANNELS.items()}[channels]
    how = {"photometric": PHOTOMETRIC[layout], "metadata": None, **how}
    if layout.endswith(("alpha", "A")):
        how.setdefault("extrasamples", ["unassalpha"])
    if how.get("planarconfig") == "separate":
        planes = np.moveaxis(planes, -1, 0)
    elif channels > 1:
        how["planarconfig"] = "contig"
    tifffile.imwrite(path, planes.squeeze(-1) if channels == 1 and planes.ndim == 3 else planes, **how)


for dtype, (layout, channels) in itertools.product(TIFF_DTYPES, CHANNELS.items()):

    @case(f"{dtype}-{layout}.tif")
    def _(path, dtype=dtype, channels=channels):
        tiff(path, noise(channels, dtype), **TIFF_META)


COMPRESSIONS = {"none": None, "deflate": "zlib", "lzw": "lzw", "packbits": "packbits", "zstd": "zstd", "lzma": "lzma"}
PIECES = {"strips": {"rowsperstrip": 10}, "tiles": {"tile": (16, 32)}}
KINDS = {"grey16": (1, "uint16"), "RGB8": (3, "uint8"), "float": (1, "float32")}

for (pressed, name), (pieces, cut), order, (kind, (channels, dtype)) in itertools.product(
    COMPRESSIONS.items(), PIECES.items(), "<>", KINDS.items()
):

    @case(f"{pressed}-{pieces}-{'II' if order == '<' else 'MM'}-{kind}.tif")
    def _(path, name=name, cut=cut, order=order, channels=channels, dtype=dtype):
        predictor = name in ("zlib", "lzw", "zstd") and not (dtype == "float32" and order == "<")
        tiff(path, noise(channels, dtype), compression=name, predictor=predictor, byteorder=order, **cut)


for dtype, (pieces, cut), name in itertools.product(("uint8", "uint16", "float32"), PIECES.items(), (None, "zlib")):

    @case(f"planar-{dtype}-{pieces}-{name}.tif")
    def _(path, dtype=dtype, cut=cut, name=name):
        tiff(path, noise(3, dtype), planarconfig="separate", compression=name, **cut)


for pieces, cut in PIECES.items():
    for kind in ("ycbcr", "rgb", "minisblack"):

        @case(f"jpeg-{pieces}-{kind}.tif")
        def _(path, cut=cut, kind=kind):
            cut = {"rowsperstrip": 16} if "rowsperstrip" in cut else cut
            planes = ramp(1 if kind == "minisblack" else 3)
            tiff(path, planes, photometric=kind, compression="jpeg", compressionargs={"level": 95}, **cut)


OTHER_TIFFS = {
    "big": {"bigtiff": True},
    "big-MM": {"bigtiff": True, "byteorder": ">", "compression": "zlib"},
    "miniswhite": {"photometric": "miniswhite"},
    "premultiplied": {"extrasamples": ["assocalpha"]},
    "unspecified": {"extrasamples": ["unspecified"]},
    "one-strip": {"rowsperstrip": HEIGHT, "compression": "zlib"},
}
for name, how in OTHER_TIFFS.items():

    @case(f"{name}.tif")
    def _(path, name=name, how=how):
        tiff(path, noise(4 if "extrasamples" in how else 1, "uint16"), **how, **TIFF_META)


@case("geography.tif")
def _(path):
    places = [(33550, 12, 3, (0.5, 0.5, 0.0)), (33922, 12, 6, (0, 0, 0, 440720.0, 3751320.0, 0))]
    tiff(path, noise(1, "float32"), extratags=[(*place, True) for place in places])


for mode in ("L", "RGB"):

    @case(f"exif-{mode}.tif")
    def _(path, mode=mode):
        block = Image.Exif()
        block.load(b"Exif\0\0" + exif())
        directory = TiffImagePlugin.ImageFileDirectory_v2()
        inner = {code: value for code, value in block.get_ifd(0x8769).items() if code != 0xA005}
        directory.update({271: "Maker", 272: "Model 3", 274: 6, 34665: inner})
        directory[34853] = dict(block.get_ifd(0x8825))
        Image.fromarray(noise(len(mode)).squeeze()).save(path, tiffinfo=directory)


# --- stacks --------------------------------------------------------------------------------------------------------


def stack(shape, dtype="uint16", seed=0):
    return np.stack([noise(1, dtype, seed + k)[..., 0] for k in range(int(np.prod(shape)))]).reshape(
        *shape, HEIGHT, WIDTH
    )


@case("pages.tif")
def _(path):
    with tifffile.TiffWriter(path) as file:
        for number in range(4):
            own = [(65001, 3, 1, 100 + number, True), (297, 3, 2, (number, 4), True)]
            page = noise(1, "uint16", number)[..., 0]
            file.write(
                page,
                description=f"page {number}",
                metadata=None,
                extratags=own,
                resolution=(100 + number, 50),
                subfiletype=2,
            )


@case("pages-rgb.tif")
def _(path):
    planes = np.stack([noise(3, "uint8", k) for k in range(3)])
    tifffile.imwrite(path, planes, photometric="rgb", metadata=None, compression="zlib")


for name, shape, how in (
    ("shaped", (2, 3), {}),
    ("shaped-axes", (2, 3), {"metadata": {"axes": "TZYX", "note": "kept"}}),
    ("shaped-hidden", (2, 3), {"metadata": {"axes": "TZYX"}, "truncate": True}),
    ("shaped-tiles", (3,), {"tile": (16, 16), "compression": "zlib"}),
):

    @case(f"{name}.tif")
    def _(path, shape=shape, how=how):
        tifffile.imwrite(path, stack(shape), photometric="minisblack", **how)


IMAGEJ = {
    "unit": "um",
    "spacing": 0.3,
    "finterval": 1.5,
    "Labels": [f"plane {k}" for k in range(6)],
    "LUTs": [np.stack([np.arange(256, dtype=np.uint8) // (k + 1)] * 3) for k in range(3)],
    "Ranges": (0.0, 1000.0, 5.0, 70.0, 1.0, 4000.0),
    "Info": "a note\nof two lines",
    "mode": "composite",
    "min": 3.0,
}
for name, axes, dtype, how in (
    ("imagej-hyper", "ZCYX", "uint16", {}),
    ("imagej-time", "TCYX", "uint8", {}),
    ("imagej-float", "ZCYX", "float32", {}),
    ("imagej-MM", "ZCYX", "uint16", {"byteorder": ">"}),
    ("imagej-hidden", "ZCYX", "uint16", {"truncate": True}),
):

    @case(f"{name}.tif")
    def _(path, axes=axes, dtype=dtype, how=how):
        metadata = {"axes": axes, **IMAGEJ}
        tifffile.imwrite(path, stack((2, 3), dtype), imagej=True, metadata=metadata, resolution=(8.0, 8.0), **how)


@case("imagej-lut.tif")
def _(path):
    table = np.random.default_rng(0).integers(0, 256, (3, 256)).astype(np.uint16) * 257
    description = "ImageJ=1.53t\nunit=micron\nmin=3.0\nmax=200.0\n"
    grey = noise()[..., 0]
    tifffile.imwrite(
        path, grey, photometric="palette", colormap=table, description=description, metadata=None, resolution=(9, 9)
    )


OME = {"PhysicalSizeX": 0.1, "PhysicalSizeXUnit": "µm", "PhysicalSizeY": 0.2, "PhysicalSizeYUnit": "µm"}
for name, axes, shape, how in (
    ("plane", "", (), {}),
    ("stack", "Z", (4,), {}),
    ("hyper", "TZC", (2, 1, 3), {"Channel": {"Name": ["a", "b", "c"]}}),
    ("order", "CTZ", (2, 1, 3), {}),
):

    @case(f"{name}.ome.tif")
    def _(path, axes=axes, shape=shape, how=how):
        metadata = {"axes": axes + "YX", **OME, **how, "Description": "Fluß <a & b>"}
        tifffile.imwrite(path, stack(shape), photometric="minisblack", ome=True, metadata=metadata, compression="zlib")


@case("rgb.ome.tif")
def _(path):
    tifffile.imwrite(path, noise(3), photometric="rgb", ome=True, metadata={"axes": "YXS", **OME}, tile=(16, 16))


# --- FITS ----------------------------------------------------------------------------------------------------------


def header(**more):
    cards = {
        "OBJECT": "M 31", "EXPTIME": (30.5, "seconds"), "CTYPE1": "RA---TAN", "CTYPE2": "DEC--TAN", "CRPIX1": 20.5,
        "CRPIX2": 18.5, "CRVAL1": 10.68, "CRVAL2": 41.27, "CDELT1": -0.001, "CDELT2": 0.001, "CUNIT1": "deg",
        "CUNIT2": "deg", "HIERARCH ESO DET CHIP": "a long keyword", **more,
    }  # fmt: skip
    found = fits.Header()
    for key, value in cards.items():
        found[key] = value
    found.add_comment("a comment")
    found.add_history("taken at night")
    return found


def with_gaps(planes):
    planes = planes.copy()
    planes[..., 3:5, 6:9] = np.nan
    return planes


FITS_PIXELS = {name: stack((), name) for name in ("uint8", "int16", "int32", "int64", "float32", "float64")}
FITS_PIXELS |= {name: stack((), name) for name in ("int8", "uint16", "uint32")}
FITS_PIXELS |= {
    "nan": with_gaps(stack((), "float32")),
    "cube": stack((4,), "int16"),
    "cube4": stack((2, 1, 3), "uint16"),
}

for name, pixels in FITS_PIXELS.items():

    @case(f"{name}.fits")
    def _(path, pixels=pixels):
        fits.PrimaryHDU(pixels, header()).writeto(path)

    @case(f"{name}-parts.fits")
    def _(path, pixels=pixels):
        table = fits.BinTableHDU.from_columns([fits.Column("flux", "D", array=np.arange(5.0))], name="CAT")
        science = fits.ImageHDU(pixels, header(), name="SCI")
        fits.HDUList([fits.PrimaryHDU(), science, fits.ImageHDU(np.ones((3, 4)), name="MASK"), table]).writeto(path)


def scaled_fits(path, **cards):
    """Integers that stand for other numbers, written by hand since astropy does not keep them as they are."""
    stored = noise(1, "int16")[..., 0]
    found = fits.PrimaryHDU(stored, header()).header
    for key, value in cards.items():
        found[key] = value
    data = found.tostring().encode() + stored.astype(">i2").tobytes()
    path.write_bytes(data + bytes(-len(data) % 2880))


@case("scaled.fits")
def _(path):
    scaled_fits(path, BSCALE=0.25, BZERO=100.0)


@case("blank.fits")
def _(path):
    scaled_fits(path, BLANK=int(noise(1, "int16")[3, 4, 0]))


@case("checksum.fits")
def _(path):
    fits.PrimaryHDU(FITS_PIXELS["int16"], header()).writeto(path, checksum=True)


for name, how in (
    ("int16", {}),
    ("uint16", {}),
    ("float32", {"compression_type": "GZIP_1", "quantize_level": 0}),
):

    @case(f"packed-{name}.fits")
    def _(path, name=name, how=how):
        parts = [fits.PrimaryHDU(), fits.CompImageHDU(FITS_PIXELS[name], header(), name="SCI", **how)]
        fits.HDUList(parts).writeto(path)


# --- Zarr ----------------------------------------------------------------------------------------------------------


def ome_zarr(path, axes, shape, dtype, version):
    """An image of three levels with channels' colours, labels and a note, as microscopes' exporters write it."""
    form = 2 if version == "0.4" else 3
    root = zarr.open_group(path, mode="w", zarr_format=form)
    units = {"t": "time", "c": "channel"}
    described = [{"name": name, "type": units.get(name, "space"), "unit": "micrometer"} for name in axes]
    pixels = stack(shape, dtype)
    datasets = []
    for level in range(3):
        size = (HEIGHT // 2**level, WIDTH // 2**level)
        chunks = (*(1 for _ in shape), 16, 20)
        array = root.create_array(str(level), shape=(*shape, *size), dtype=dtype, chunks=chunks)
        array[:] = pixels[..., : size[0], : size[1]]
        steps = [*(1.0 for _ in shape), 0.5 * 2**level, 0.25 * 2**level]
        moved = [*(0.0 for _ in shape), 10.0, 20.0]
        transformations = [{"type": "scale", "scale": steps}, {"type": "translation", "translation": moved}]
        datasets.append({"path": str(level), "coordinateTransformations": transformations})
    ome = {"multiscales": [{"version": version, "name": "cells", "axes": described, "datasets": datasets}]}
    ome["omero"] = {"channels": [{"color": "00FF00", "label": "DAPI", "window": {"start": 0, "end": 4000}}]}
    root.attrs.update({"ome": {**ome, "version": version}} if form == 3 else ome)
    root.attrs["note"] = "Fluß"
    labels = root.create_group("labels")
    labels.attrs["labels"] = ["nuclei"]
    labels.create_array("nuclei", data=np.arange(HEIGHT * WIDTH, dtype=np.uint32).reshape(HEIGHT, WIDTH))


for version, (axes, shape), dtype in itertools.product(
    ("0.4", "0.5"), (("yx", ()), ("zyx", (3,)), ("tczyx", (2, 1, 2))), ("uint8", "uint16", "float32")
):

    @case(f"{version}-{axes}-{dtype}.ome.zarr")
    def _(path, version=version, axes=axes, shape=shape, dtype=dtype):
        ome_zarr(path, axes, shape, dtype, version)


for form, dtype in itertools.product((2, 3), ("int16", "float64")):

    @case(f"array-v{form}-{dtype}.zarr")
    def _(path, form=form, dtype=dtype):
        how = {"shards": (1, 32, 32)} if form == 3 else {"order": "F"}
        pixels = stack((2,), dtype)
        array = zarr.create_array(path, shape=pixels.shape, dtype=dtype, chunks=(1, 16, 16), zarr_format=form, **how)
        array[:] = pixels
        array.attrs["units"] = json.dumps({"x": "µm"})


@case("big-endian.zarr")
def _(path):
    zarr.create_array(path, data=stack(()).astype(">u2"), chunks=(16, 16), zarr_format=2)


def make(name, folder):
    path = folder / name
    CASES[name](path)
    return path


def data_of(name, folder):
    """The bytes of a case that is one file."""
    return make(name, folder).read_bytes()


def jpeg_bytes(planes, **how):
    stream = BytesIO()
    Image.fromarray(planes.squeeze()).save(stream, format="JPEG", **how)
    return stream.getvalue()
