"""What names say of a stage: names of modules, of functions, and of what they call.

Order of trust: the function that is being called (``cv2.imdecode``), the module of a frame (``PIL.ImageFile``), the
name of a function (``read_image``, ``RandomJitter.__call__``). The tables are short on purpose: a name that means
several things says nothing.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final, Literal

__all__ = [
    "HANDLES",
    "STAGE_OF_FUNCTION",
    "Called",
    "DataStage",
    "is_copy_call",
    "is_copy_name",
    "stage_of_call",
    "stage_of_module",
    "stage_of_name",
]

DataStage = Literal["read", "decode", "augment"]

_WORD: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")

_READ_WORDS: Final = frozenset(
    {
        "read", "reads", "reader", "reading", "load", "loader", "loading", "fetch", "open", "download", "disk",
        "recv", "imread", "fromfile", "readinto", "pread", "storage", "throttle", "throttled",
    }
)  # fmt: skip
_DECODE_PARTS: Final = ("decode", "decompress", "decoding", "decoder", "unpack", "parse")
_AUGMENT_PARTS: Final = (
    "transform", "augment", "jitter", "crop", "flip", "resize", "rotat", "normali", "blur", "noise", "mixup", "cutmix",
    "cutout", "mosaic", "warp", "affine", "erase", "erasing", "distort", "preprocess", "tokeni", "filter", "colour",
    "color", "solarize", "posterize", "equalize", "elastic", "perspective",
)  # fmt: skip

_READ_CALLS: Final = frozenset(
    {
        "open", "read", "read1", "readinto", "readline", "readlines", "read_bytes", "read_text", "read_file", "pread",
        "preadv", "fromfile", "memmap", "recv", "recv_into", "download_file", "download_fileobj", "get_object",
        "urlopen", "urlretrieve", "execute", "fetchone", "fetchmany", "fetchall", "read_direct", "read_table",
        "read_csv", "read_parquet", "loadtxt", "genfromtxt", "seek", "read_image", "listdir", "scandir", "iterdir",
        "glob",
    }
)  # fmt: skip
STAGE_OF_FUNCTION: Final[dict[str, Literal["read", "decode", "both"]]] = {
    "numpy.load": "read", "numpy.fromfile": "read", "numpy.loadtxt": "read", "numpy.genfromtxt": "read",
    "torch.load": "read", "h5py.File": "read", "zipfile.ZipFile": "read", "tarfile.open": "read",
    "sqlite3.connect": "read", "lmdb.open": "read", "zarr.open": "read", "netCDF4.Dataset": "read",
    "pandas.read_csv": "read", "pandas.read_parquet": "read", "pandas.read_pickle": "read", "pandas.read_hdf": "read",
    "pandas.read_feather": "read", "pandas.read_excel": "read", "pandas.read_json": "read", "pandas.read_sql": "read",
    "pyarrow.parquet.read_table": "read", "pyarrow.parquet.ParquetFile": "read", "polars.read_csv": "read",
    "polars.read_parquet": "read", "glob.glob": "read", "os.listdir": "read",
    "torchvision.io.image.read_file": "read", "urllib.request.urlopen": "read", "requests.get": "read",
    "pickle.load": "decode", "pickle.loads": "decode", "marshal.loads": "decode",
    "zlib.decompress": "decode", "gzip.decompress": "decode", "cv2.imdecode": "decode",
    "cv2.VideoCapture": "decode", "av.open": "decode", "decord.VideoReader": "decode",
    "torchvision.io.image.decode_image": "decode", "torchvision.io.image.decode_jpeg": "decode",
    "torchvision.io.image.decode_png": "decode", "xml.etree.ElementTree.parse": "decode", "nibabel.load": "decode",
    "cv2.imread": "both", "skimage.io.imread": "both", "imageio.imread": "both", "imageio.v2.imread": "both",
    "imageio.v3.imread": "both", "tifffile.imread": "both", "pydicom.dcmread": "both", "soundfile.read": "both",
    "librosa.load": "both", "torchaudio.load": "both", "scipy.io.wavfile.read": "both",
}  # fmt: skip
"""Functions whose results a trial can give back, by the names they are called by. "both": they read a file and decode
it."""
HANDLES: Final = frozenset(
    {
        "numpy.load", "h5py.File", "zipfile.ZipFile", "tarfile.open", "sqlite3.connect", "lmdb.open", "zarr.open",
        "netCDF4.Dataset", "pyarrow.parquet.ParquetFile", "urllib.request.urlopen", "cv2.VideoCapture", "av.open",
        "decord.VideoReader",
    }
)  # fmt: skip
"""Those of them that open something, from which methods read."""
_READ_FUNCTIONS: Final = {name for name, stage in STAGE_OF_FUNCTION.items() if stage == "read"} | {"PIL.Image.open"}
_DECODE_CALLS: Final = frozenset(
    {
        "imdecode", "decode", "decompress", "decode_jpeg", "decode_png", "decode_image", "decode_webp", "frombuffer",
        "decompressobj", "b64decode", "unpackb",
    }
)  # fmt: skip
_DECODE_FUNCTIONS: Final = {name for name, stage in STAGE_OF_FUNCTION.items() if stage == "decode"}
# These read a file and decode it: reading where the thread waits, decoding where it computes.
_READ_AND_DECODE: Final = frozenset({"imread", "VideoCapture", "imread_v2", "dcmread"})
_WAITING_CALLS: Final = frozenset({"sleep", "poll", "select"})
_COMPUTING: Final = frozenset({"numpy", "torch", "cv2", "scipy", "skimage", "PIL", "math", "random", "numba"})

# The longest prefix counts.
_MODULES: Final[dict[str, DataStage | None]] = {
    "PIL": "augment", "PIL.ImageFile": "decode", "PIL.JpegImagePlugin": "decode", "PIL.PngImagePlugin": "decode",
    "PIL.WebPImagePlugin": "decode", "PIL.TiffImagePlugin": "decode", "PIL.BmpImagePlugin": "decode",
    "PIL.GifImagePlugin": "decode", "PIL.Jpeg2KImagePlugin": "decode", "PIL.PpmImagePlugin": "decode",
    "torchvision.io": "decode", "torchvision.transforms": "augment", "torchvision.tv_tensors": "augment",
    "albumentations": "augment", "kornia": "augment", "imgaug": "augment", "monai.transforms": "augment",
    "torchio.transforms": "augment", "torchaudio.transforms": "augment", "audiomentations": "augment",
    "volumentations": "augment", "batchgenerators": "augment", "tokenizers": "augment", "transformers": "augment",
    "skimage.transform": "augment", "skimage.filters": "augment", "scipy.ndimage": "augment",
    "skimage.io": "decode", "imageio": "decode", "tifffile": "decode", "nibabel": "decode", "pydicom": "decode",
    "SimpleITK": "decode", "decord": "decode", "av": "decode", "soundfile": "decode", "librosa": "decode",
    "torchaudio": "decode", "simplejpeg": "decode", "turbojpeg": "decode", "pickle": "decode", "json": "augment",
    "h5py": "read", "lmdb": "read", "zarr": "read", "tables": "read", "pyarrow": "read", "pandas.io": "read",
    "sqlite3": "read", "netCDF4": "read", "xarray": "read", "fsspec": "read", "s3fs": "read", "gcsfs": "read",
    "boto3": "read", "botocore": "read", "urllib": "read", "urllib3": "read", "requests": "read", "http": "read",
    "socket": "read", "ssl": "read", "aiohttp": "read", "httpx": "read", "smart_open": "read", "gzip": "read",
    "bz2": "read", "lzma": "read", "zipfile": "read", "tarfile": "read", "pathlib": "read", "io": "read",
    "numpy.lib.npyio": "read", "numpy.lib.format": "read", "numpy.lib._npyio_impl": "read",
    "numpy.lib._format_impl": "read", "torch.serialization": "read", "webdataset.gopen": "read",
    "penstock.stores": "read", "penstock.transforms": "augment",
}  # fmt: skip
# convert() decodes a file that was only opened, and then copies it.
_DECODING_FUNCTIONS_OF_PIL: Final = frozenset(
    {"open", "tobytes", "__array_interface__", "frombuffer", "frombytes", "convert", "copy"}
)

_COPY_VERBS: Final = frozenset({"copy", "move", "send", "transfer", "put", "to", "upload", "push", "host"})
_DEVICES: Final = frozenset({"device", "gpu", "cuda", "accelerator", "npu", "tpu", "xla", "mps"})
_BATCHES: Final = frozenset({"batch", "batches", "inputs", "images", "tensor", "tensors", "sample", "samples"})
_COPY_NAMES: Final = frozenset({"cuda", "pin_memory", "h2d", "copy_h2d", "device_put", "host_to_device"})
_DTYPES: Final = re.compile(r"dtype|float|double|half|bfloat|int|long|short|bool|complex|memory_format")
_DEVICE_TEXT: Final = re.compile(r"dev|gpu|cuda|rank|accel|mps|xpu|xla|npu|target")


class Called:
    """The function that an instruction calls.

    ``name``: as far as it is known: ``numpy.load``, ``.read`` for a method of some object, ``helper``. ``arguments``:
    their source.
    """

    __slots__ = ("arguments", "name")

    def __init__(self, name: str, arguments: str = "") -> None:
        self.name, self.arguments = name, arguments

    @property
    def last(self) -> str:
        """The last part of the name."""
        return self.name.rpartition(".")[2]

    @property
    def is_waiting(self) -> bool:
        """Whether the function does nothing but wait."""
        return self.last in _WAITING_CALLS

    @property
    def is_computation(self) -> bool:
        """Whether the function belongs to a library that computes."""
        return self.name.partition(".")[0] in _COMPUTING


@cache
def _words(name: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _WORD.findall(name))


def stage_of_call(called: Called, *, waits: bool) -> DataStage | None:
    """The stage of a call; None if its name does not say it."""
    last = called.last
    if last in _READ_AND_DECODE:
        return "read" if waits else "decode"
    if called.name in _READ_FUNCTIONS or last in _READ_CALLS:
        return "read"
    if called.name in _DECODE_FUNCTIONS or last in _DECODE_CALLS:
        return "decode"
    return None


@cache
def stage_of_module(module: str, function: str) -> DataStage | None:
    """Return the stage of a function of a known module; None for any other."""
    if module == "PIL.Image" and function in _DECODING_FUNCTIONS_OF_PIL:
        return "decode"
    if module.startswith("torchvision.io") and function == "read_file":
        return "read"
    prefix = module
    while prefix:
        if prefix in _MODULES:
            return _MODULES[prefix]
        prefix = prefix.rpartition(".")[0]
    return None


@cache
def stage_of_name(qualified_name: str) -> tuple[DataStage, ...]:
    """Return the stages that a function's name speaks of; none, one, or several (``load_and_resize``)."""
    *owners, name = [part for part in qualified_name.split(".") if part != "<locals>"]
    if name in {"__call__", "forward", "apply", "run"} and owners:
        name = owners[-1]
    if name.startswith("<") or (name.startswith("__") and name.endswith("__")):
        return ()
    words, found = _words(name), list[DataStage]()
    lowered = name.lower()
    if words & _READ_WORDS:
        found.append("read")
    if any(part in lowered for part in _DECODE_PARTS):
        found.append("decode")
    if any(part in lowered for part in _AUGMENT_PARTS):
        found.append("augment")
    return tuple(found)


@cache
def is_copy_name(name: str) -> bool:
    """Return whether a function's name says that it copies to a device."""
    if name in _COPY_NAMES:
        return True
    words = _words(name)
    if words & {"transfer", "upload"} or (words & _COPY_VERBS and words & _BATCHES and "to" not in words):
        return not words & {"model", "module", "weights", "from"}
    return bool(words & _DEVICES) and bool(words & _COPY_VERBS) and not words & {"model", "module", "weights", "from"}


def is_copy_call(called: Called) -> bool:
    """Return whether a call copies to a device: ``batch.to(device)``, but not ``batch.to(torch.float16)``."""
    if called.last != "to":
        return is_copy_name(called.last)
    text = called.arguments.lower()
    return bool(_DEVICE_TEXT.search(text)) or not _DTYPES.search(text)
