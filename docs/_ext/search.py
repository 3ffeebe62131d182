"""What the site's search reads: the text of each page by sections, words as people ask, and what kind of page it is.

Sphinx's own search finds pages that have all words of a question, and ranks a decision like a how-to.
``_static/search.js`` ranks by how rare a word is and where it stands, from what is written here to
``_static/pages.js``: a script, because a page that is opened as a file may not read another file.
"""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Final

from docutils import nodes

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

__all__ = ["ASKED", "KINDS", "find_kind", "write_pages"]

KINDS: Final = (
    ("*/index", "Overview", 0.6),
    ("docs/howto/*", "How-to", 1.5),
    ("penstock/explain/pages/*", "Problem", 1.2),
    ("docs/tutorials/*", "Tutorial", 1.0),
    ("docs/decisions/*", "Decision", 0.4),
    ("docs/benchmarks*", "Benchmark", 0.4),
    ("benches/*", "Benchmark", 0.2),
    ("docs/reference/*", "Reference", 0.7),
    ("docs/command-line", "Reference", 1.0),
    ("docs/releasing", "Project", 0.4),
    ("docs/good-first-issues", "Project", 0.4),
    ("docs/*", "Guide", 1.3),
    ("*", "Project", 0.4),
)
"""Patterns of pages, what such a page is called among the results, and its weight. The first that matches counts."""

ASKED: Final = {
    "docs/augmentation": "data augmentation transforms albumentations randaugment mixup cutmix mosaic colour jitter",
    "docs/benchmarks": "benchmark speed comparison how fast ffcv dali throughput images per second",
    "docs/check": "lint dataset common mistakes bugs sanity check dataloader",
    "docs/command-line": "cli command options terminal help flags exit code",
    "docs/compare": "alternatives versus vs ffcv dali webdataset grain spdl mosaic streaming difference",
    "docs/detection": (
        "object detection segmentation bounding boxes coco voc yolo keypoints masks faster r-cnn annotations"
    ),
    "docs/distributed": (
        "ddp multi gpu multiple gpus torchrun distributed training slurm rank world size deepspeed fsdp"
    ),
    "docs/doctor": (
        "profile profiling bottleneck slow dataloader training slow gpu idle low gpu utilization utilisation "
        "waiting data loading is the bottleneck num_workers tuning"
    ),
    "docs/faults": "fault tolerance crash recover resume checkpoint worker died retry error handling skip",
    "docs/first-hour": "getting started quickstart beginner tutorial introduction",
    "docs/formats": (
        "png webp tiff heic jpeg xl avif grayscale 16 bit alpha rgba exif orientation rotated image formats"
    ),
    "docs/from-torch": (
        "migrate pytorch torch.utils.data drop-in replacement dataloader arguments differences resume state_dict"
    ),
    "docs/gpu": "cuda pin_memory prefetch nvjpeg decode on gpu transfer device non_blocking",
    "docs/guide": "usage overview resume checkpoint mid epoch state_dict",
    "docs/mixtures": "several datasets combine weights sampling proportions concat interleave",
    "docs/packing": "convert dataset pack lmdb create csv resize shards preprocess",
    "docs/performance": "make it faster tuning optimise speed how decoding works",
    "docs/planning": "memory estimate cost steps per epoch cluster simulate",
    "docs/platforms": "windows macos arm64 python version support wheels",
    "docs/ray": "ray cluster remote workers cpu nodes",
    "docs/samplers": "weighted sampler balanced distributed sampler bucket batch sampler shuffle order",
    "docs/start": "install installation pip",
    "docs/stores": (
        "lmdb hdf5 h5py webdataset tar parquet arrow hugging face recordio tfrecord mongodb s3 object storage "
        "gcs azure bucket cloud imagefolder read format convert"
    ),
    "docs/streams": "iterable dataset webdataset tar streaming shards sequential shuffle buffer",
    "docs/torchvision": "imagefolder transforms v2 torchvision compose totensor",
    "docs/view": "look at dataset browse visualize visualise show images browser viewer explore duplicates",
    "docs/viewer-live": "watch running training live batches monitor",
    "docs/howto/broken-images": (
        "corrupt corrupted jpeg broken truncated damaged image skip bad images unidentifiedimageerror "
        "premature end premature eof"
    ),
    "docs/howto/class-imbalance": (
        "class imbalance imbalanced unbalanced oversampling rare classes weighted random sampler long tail"
    ),
    "docs/howto/coefficients": "faster jpeg decoding lossless transcode huffman dct coefficients progressive",
    "docs/howto/container-limits": "docker kubernetes cpu_count cgroup exit code 137 too many workers cpu limit",
    "docs/howto/debugging": "debug breakpoint pdb step through single process print",
    "docs/howto/determinism": (
        "reproducible reproducibility seed deterministic random augmentations same numpy seed worker_init_fn"
    ),
    "docs/howto/find-records": (
        "duplicates duplicate images near-duplicates outliers query filter clean dataset label errors"
    ),
    "docs/howto/how-many-workers": "num_workers auto autotune how many workers GPU idle utilization prefetch factor",
    "docs/howto/images-of-different-sizes": (
        "variable size stack expects each tensor to be equal size padding collate pad images different shapes"
    ),
    "docs/howto/length-and-progress": "len progress bar tqdm steps per epoch number of batches",
    "docs/howto/many-small-files": "millions of files inode slow listing copying small files dataset",
    "docs/howto/memory-growth": "out of memory oom ram leak memory leak copy on write killed memory keeps increasing",
    "docs/howto/mongodb-without-a-server": "mongodb mongomock ferretdb fake mock try without server test database",
    "docs/howto/network-disks": "nfs lustre network file system slow mounted bucket s3fs gcsfuse",
    "docs/howto/own-annotations": "custom annotation format parser json labels",
    "docs/howto/own-op": "custom transform augmentation lambda own function",
    "docs/howto/own-store": "custom dataset format reader plugin register binary file",
    "docs/howto/production": "prometheus grafana dashboard opentelemetry metrics monitoring production exporter alert",
    "docs/howto/rewind": "loss spike nan which samples batch was bad debug step replay trace back outlier",
    "docs/howto/selection": "subset filter exclude records some classes only ignore bad samples",
    "docs/howto/shared-memory": "bus error shm docker shm-size unable to allocate shared memory /dev/shm",
    "docs/howto/slow-first-epoch": (
        "first epoch slow first batch slow startup time warm up page cache worker start up pause between "
        "epochs persistent_workers"
    ),
    "docs/howto/too-many-open-files": "too many open files ulimit ancdata file descriptors sharing strategy errno 24",
    "docs/howto/validation": "train test split validation set k-fold cross validation stratified group split holdout",
    "docs/howto/what-the-model-sees": (
        "visualise visualize augmentation batch look at batches normalisation denormalize inspect"
    ),
    "docs/howto/workers-hang": (
        "hang deadlock freeze stuck dataloader never starts cannot re-initialize cuda in forked subprocess "
        "multiprocessing spawn fork"
    ),
    "docs/tutorials/classification": "image classification train resnet example imagefolder",
    "docs/tutorials/ddp": "ddp example torchrun multi gpu training script",
    "docs/tutorials/detection": "object detection example faster r-cnn train",
    "docs/tutorials/landmarks": "keypoints landmarks face pose example",
    "docs/tutorials/segmentation": "semantic segmentation example masks unet",
    "docs/tutorials/table": "csv table pandas dataframe labels regression multi-label",
    "docs/tutorials/with_lightning": "pytorch lightning trainer datamodule",
    "docs/tutorials/with_accelerate": "hugging face accelerate",
    "docs/tutorials/with_transformers": "hugging face transformers trainer",
    "docs/tutorials/with_timm": "timm pytorch image models",
    "docs/tutorials/notebook": "jupyter notebook colab",
    "penstock/explain/pages/not-picklable": "can't pickle lambda pickle error spawn",
    "penstock/explain/pages/worker": "dataloader worker exited unexpectedly killed by signal",
}
"""Words with which people ask for a page, beside those of its title and headings."""


def find_kind(page: str) -> tuple[str, float]:
    """What a page is called among the results, and its weight."""
    return next((name, weight) for pattern, name, weight in KINDS if fnmatchcase(page, pattern))


def write_pages(app: Sphinx, exception: Exception | None) -> None:
    """Write ``_static/pages.js`` of a site that was built."""
    if exception is None:
        pages = [describe_page(app.env, page) for page in sorted(app.env.found_docs)]
        text = "const PAGES = " + json.dumps(pages, ensure_ascii=False, separators=(",", ":")) + ";\n"
        Path(app.outdir, "_static", "pages.js").write_text(text, encoding="utf-8")


def describe_page(env: BuildEnvironment, page: str) -> dict[str, object]:
    """One page, as ``search.js`` reads it."""
    kind, weight = find_kind(page)
    sections = [
        [section["ids"][0], section.next_node(nodes.title).astext(), *read_text(section)]
        for section in env.get_doctree(page).findall(nodes.section)
        if section.next_node(nodes.title)
    ]
    title = env.titles[page].astext()
    return {
        "name": page,
        "title": title,
        "kind": kind,
        "weight": weight,
        "asked": ASKED.get(page, ""),
        "sections": sections,
    }


def read_text(section: nodes.section) -> tuple[str, str]:
    """The sentences and the code of a section, without those of the sections in it."""
    texts: tuple[list[str], list[str]] = ([], [])
    for child in section.children:
        if not isinstance(child, nodes.section | nodes.title | nodes.raw):
            for part in child.findall(nodes.TextElement):
                if not isinstance(part.parent, nodes.TextElement):
                    texts[isinstance(part, nodes.literal_block)].append(part.astext())
    prose, code = (" ".join(" ".join(text).split()) for text in texts)
    return prose, code
