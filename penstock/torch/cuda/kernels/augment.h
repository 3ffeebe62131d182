// Augmentation between the kernels `windows` and `finish`, in uint8: changes of values. Specification:
// native/core/src/pixels/ (values/scalar.rs, adjust.rs); the order of launches and the numbers of steps:
// penstock/torch/cuda/augmenting.py.
//
// A step changes one image. Steps that change each pixel by itself run one after another in the kernel `change`. Those
// that read other pixels (neighbours.h) have their own kernels, which read one of two memories and write the other one.

#pragma once

#include "rows.h"

enum StepKind {
  NOTHING,
  KEEP, // copies a pixel
  BRIGHTNESS,
  SATURATION,
  HUE,
  SHIFT_HSV,
  GRAYSCALE,
  POSTERIZE,
  SOLARIZE,
  INVERT,
  LOOKUP,
  PERMUTE, // of channels
  ERASE,
  CONTRAST, // these three by tables that the kernel `measure` makes
  AUTO_CONTRAST,
  EQUALIZE,
  BLUR, // these three read other pixels
  SHARPEN,
  WARP
};

struct Step {
  i32 kind, image;
  i32 source, target; // numbers of the memories, in the first step of a row
  i32 integers[4];
  double numbers[8];
};

static_assert(sizeof(Step) == 96, "a step has 96 bytes");

struct Augment {
  u8 *pixels[2];        // each (images, 3, height, width); the first one is `windows` of a batch
  const Step *steps;    // (rows of the grid, most): a row is of one image, and ends before the first NOTHING
  const u8 *tables;     // of LOOKUP: 3 x 256 values each
  const float *weights; // of BLUR
  u8 *measured;         // for each image: 3 x 256 values
  void *out;            // the tensor after `finish`
  i64 strides[4];       // of `out`, in elements: image, channel, row, column
  i32 images, width, height, dtype;
  i32 most; // steps of a row
  i32 unused;
};

// The number of this thread among those of its row of the grid: an image has less than 2^31 values.
DEVICE i32 thread_number() { return (i32)(blockIdx.x * blockDim.x + threadIdx.x); }

// The steps of this row of the grid.
DEVICE const Step *steps_of(const Augment &augment) { return augment.steps + (i64)blockIdx.y * augment.most; }

DEVICE i32 pixels_of(const Augment &augment) { return augment.width * augment.height; }

// The first plane of an image in one of the memories.
DEVICE u8 *planes_of(const Augment &augment, i32 memory, i32 image) {
  u8 *pixels = memory ? augment.pixels[1] : augment.pixels[0]; // no index: the arguments stay in registers
  return pixels + (i64)image * (3 * pixels_of(augment));
}

DEVICE Pixel pixel_at(const u8 *planes, i32 pixels, i32 number) {
  return {{planes[number], planes[number + pixels], planes[number + 2 * pixels]}};
}

DEVICE void set_pixel(u8 *planes, i32 pixels, i32 number, const Pixel &pixel) {
  for (i32 c = 0; c < 3; c++)
    planes[number + c * pixels] = pixel.values[c];
}

DEVICE u8 channel_of(const Pixel &pixel, i32 channel) {
  return channel == 0 ? pixel.values[0] : channel == 1 ? pixel.values[1] : pixel.values[2];
}

DEVICE u8 luma_of(const Pixel &pixel) {
  return (u8)((19595u * pixel.values[0] + 38470u * pixel.values[1] + 7471u * pixel.values[2] + 0x8000u) >> 16);
}

// Clips to 0..255, and truncates.
DEVICE u8 clipped(float value) { return value > 0 ? (u8)(value < 255 ? value : 255) : (u8)0; }

// Blends in single precision, with three roundings.
DEVICE u8 blended(u8 base, u8 level, float factor) {
  float difference = (float)level - (float)base, product = difference * factor;
  return clipped(product + (float)base);
}

DEVICE float absolute(float value) { return value < 0 ? -value : value; }

// Pillow's conversion to HSV, a change of the hue, and Pillow's conversion back.
DEVICE Pixel with_hue(const Pixel &pixel, i32 turn) {
  i32 r = pixel.values[0], g = pixel.values[1], b = pixel.values[2];
  i32 largest = most(r, most(g, b)), smallest = least(r, least(g, b)), middle = r + g + b - largest - smallest;
  float below = (float)(largest - middle) / (float)most(largest - smallest, 1), sixth;
  if (largest == r)
    sixth = g >= b ? 1.0f - below : -1.0f + below;
  else if (largest == g)
    sixth = r >= b ? 1.0f + below : 3.0f - below;
  else
    sixth = r >= g ? 5.0f - below : 3.0f + below;
  float turns = sixth / 6.0f + (sixth < 0 ? 1.0f : 0.0f);
  float fraction = (float)(largest - smallest) / (float)most(largest, 1);
  i32 hue = (clipped(turns * 255.0f) + turn) & 0xff;
  float saturation = (float)clipped(fraction * 255.0f), position = 6.0f * (float)hue;
  float losses[3] = {510.0f - absolute(position - 765.0f), absolute(position - 510.0f) - 255.0f,
                     absolute(position - 1020.0f) - 255.0f};
  Pixel changed;
  for (i32 c = 0; c < 3; c++) {
    float kept = 1.0f - saturation * clamp(losses[c], 0.0f, 255.0f) * (1.0f / 65025.0f);
    changed.values[c] = clipped((float)largest * kept + 0.5f);
  }
  return changed;
}

// Hue, saturation and value at once. `sixths` is in [1, 7].
DEVICE Pixel with_shifted_hsv(const Pixel &pixel, float sixths, float saturation_factor, float value_factor) {
  float r = pixel.values[0], g = pixel.values[1], b = pixel.values[2];
  float largest = most(r, most(g, b)), smallest = least(r, least(g, b)), chroma = largest - smallest;
  float away = largest == r ? g - b : largest == g ? b - r : r - g;
  float start = largest == r ? 0.0f : largest == g ? 2.0f : 4.0f;
  float hue = away / most(chroma, 1.0f) + (start + sixths);
  hue = hue >= 6.0f ? hue - 6.0f : hue;
  float value = least(largest * value_factor, 255.0f);
  float saturation = least(chroma / most(largest, 1.0f) * saturation_factor, 1.0f);
  chroma = value * saturation;
  float lowest = value - chroma;
  float shares[3] = {absolute(hue - 3.0f) - 1.0f, 2.0f - absolute(hue - 2.0f), 2.0f - absolute(hue - 4.0f)};
  Pixel changed;
  for (i32 c = 0; c < 3; c++)
    changed.values[c] = clipped(lowest + chroma * clamp(shares[c], 0.0f, 1.0f) + 0.5f);
  return changed;
}

// The new value of a channel's value, by a step for which the other channels do not matter.
DEVICE u8 mapped(const Augment &augment, const Step &step, i32 channel, u8 value) {
  switch (step.kind) {
  case BRIGHTNESS:
    return blended(0, value, (float)step.numbers[0]);
  case POSTERIZE:
    return (u8)(value & step.integers[0]);
  case SOLARIZE:
    return step.numbers[0] <= value ? (u8)~value : value;
  case INVERT:
    return (u8)~value;
  case LOOKUP:
    return augment.tables[step.integers[0] * 768 + channel * 256 + value];
  case CONTRAST:
  case AUTO_CONTRAST:
  case EQUALIZE:
    return augment.measured[(i64)step.image * 768 + channel * 256 + value];
  default:
    return value;
  }
}

DEVICE bool is_inside(const Step &step, i32 x, i32 y) {
  const i32 *rectangle = step.integers; // left, top, right, bottom
  return x >= rectangle[0] && y >= rectangle[1] && x < rectangle[2] && y < rectangle[3];
}

DEVICE Pixel changed_by(const Augment &augment, const Step &step, const Pixel &pixel, i32 number) {
  Pixel changed = pixel;
  if (step.kind == HUE)
    return with_hue(pixel, step.integers[0]);
  if (step.kind == SHIFT_HSV)
    return with_shifted_hsv(pixel, (float)step.numbers[0], (float)step.numbers[1], (float)step.numbers[2]);
  u8 luma = luma_of(pixel);
  bool is_erased = step.kind == ERASE && is_inside(step, number % augment.width, number / augment.width);
  for (i32 c = 0; c < 3; c++) {
    if (step.kind == SATURATION)
      changed.values[c] = blended(luma, pixel.values[c], (float)step.numbers[0]);
    else if (step.kind == GRAYSCALE)
      changed.values[c] = luma;
    else if (step.kind == PERMUTE)
      changed.values[c] = channel_of(pixel, step.integers[c]);
    else if (is_erased)
      changed.values[c] = (u8)step.numbers[c];
    else
      changed.values[c] = mapped(augment, step, c, pixel.values[c]);
  }
  return changed;
}

KERNEL(change, Augment, augment) {
  i32 number = thread_number(), pixels = pixels_of(augment);
  const Step *steps = steps_of(augment);
  if (number >= pixels)
    return;
  Pixel pixel = pixel_at(planes_of(augment, steps->source, steps->image), pixels, number);
  for (i32 i = 0; i < augment.most && steps[i].kind != NOTHING; i++)
    pixel = changed_by(augment, steps[i], pixel, number);
  set_pixel(planes_of(augment, steps->target, steps->image), pixels, number, pixel);
}

// Of an image: the sum of its luma, or the number of pixels of each value.
struct Statistics {
  u64 luma;
  u32 counts[3][256];
};

DEVICE void clear_statistics(const Augment &, Statistics &statistics) {
  if (threadIdx.x == 0)
    statistics.luma = 0;
  for (i32 i = threadIdx.x; i < 768; i += blockDim.x)
    statistics.counts[i / 256][i % 256] = 0;
}

DEVICE void collect_statistics(const Augment &augment, Statistics &statistics) {
  const Step &step = *steps_of(augment);
  i32 pixels = pixels_of(augment);
  const u8 *planes = planes_of(augment, step.source, step.image);
  u64 luma = 0;
  for (i32 number = threadIdx.x; number < pixels; number += blockDim.x) {
    Pixel pixel = pixel_at(planes, pixels, number);
    if (step.kind == CONTRAST) {
      luma += luma_of(pixel);
      continue;
    }
    for (i32 c = 0; c < 3; c++)
      add_shared(statistics.counts[c][pixel.values[c]], 1u);
  }
  if (step.kind == CONTRAST)
    add_shared(statistics.luma, luma);
}

// Stretches the values that occur to the full range; in double precision with two roundings.
DEVICE u8 stretched(const u32 *counts, i32 level) {
  i32 low = 0, high = 255;
  while (low < 255 && counts[low] == 0)
    low++;
  while (high > 0 && counts[high] == 0)
    high--;
  if (low >= high)
    return (u8)level;
  double scale = 255.0 / (high - low), offset = -low * scale, product = level * scale, result = product + offset;
  return result > 0 ? (u8)(result < 255 ? result : 255) : (u8)0;
}

// The rank of a value, in steps of 1/255 of the pixels that do not have the largest value.
DEVICE u8 equalized(const u32 *counts, i32 level) {
  u32 total = 0, below = 0, brightest = 0;
  for (i32 i = 0; i < 256; i++) {
    below += i < level ? counts[i] : 0;
    total += counts[i];
    brightest = counts[i] > 0 ? counts[i] : brightest;
  }
  u32 step = (total - brightest) / 255;
  return step == 0 ? (u8)level : (u8)least((below + step / 2) / step, 255u);
}

DEVICE void make_tables(const Augment &augment, Statistics &statistics) {
  const Step &step = *steps_of(augment);
  u8 mean = (u8)((double)statistics.luma / (double)pixels_of(augment) + 0.5);
  for (i32 i = threadIdx.x; i < 768; i += blockDim.x) {
    const u32 *counts = statistics.counts[i / 256];
    i32 level = i % 256;
    u8 value = step.kind == CONTRAST        ? blended(mean, (u8)level, (float)step.numbers[0])
               : step.kind == AUTO_CONTRAST ? stretched(counts, level)
                                            : equalized(counts, level);
    augment.measured[(i64)step.image * 768 + i] = value;
  }
}

// One block for each image.
KERNEL_OF(measure, Augment, Statistics, clear_statistics, collect_statistics, make_tables)
