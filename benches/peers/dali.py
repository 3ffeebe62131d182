"""NVIDIA DALI on the CPU, with fused decode and crop, its fastest method here."""

import numpy as np
from nvidia.dali import fn, pipeline_def, types
from serve import BATCH, DEVIATION, MEAN, WORKERS, serve


def make(task, candidate, files):
    batch = BATCH[task]

    @pipeline_def(batch_size=batch, num_threads=WORKERS, device_id=None)
    def graph():
        encoded, labels = fn.readers.file(files=files, labels=list(range(len(files))), random_shuffle=task != "T3")
        linear = {"interp_type": types.INTERP_LINEAR, "antialias": True}
        if task == "T4":
            images = fn.decoders.image(encoded, device="cpu", output_type=types.RGB)
            images = fn.resize(images, size=(640, 640), mode="not_larger", interp_type=types.INTERP_LINEAR)
            return fn.crop(images, crop=(640, 640), out_of_bounds_policy="pad", fill_values=114), labels
        mirror = 0
        if task == "T3":
            images = fn.resize(fn.decoders.image(encoded, device="cpu"), resize_shorter=256, **linear)
        else:
            mirror = fn.random.coin_flip(probability=0.5)
            images = fn.decoders.image_random_crop(
                encoded, device="cpu", random_aspect_ratio=[3 / 4, 4 / 3], random_area=[0.08, 1.0]
            )
            images = fn.resize(images, size=(224, 224), **linear)
        mean, deviation = ([255 * value for value in values] for values in (MEAN, DEVIATION))
        images = fn.crop_mirror_normalize(
            images, dtype=types.FLOAT, output_layout="CHW", crop=(224, 224), mean=mean, std=deviation, mirror=mirror
        )
        return images, labels

    pipeline = graph()
    pipeline.build()

    def epoch():
        for _ in range(len(files) // batch):
            images, labels = pipeline.run()
            yield np.asarray(images.as_tensor()), np.asarray(labels.as_tensor())

    return epoch


serve(make)
