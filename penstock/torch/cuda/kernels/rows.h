// Rows of the batch: the window of each picture with its background and flips, and its values as the tensor's dtype. They
// are written at once (`rows`), or in uint8 (`windows`), changed (augment.h), and then written (`finish`).
// Specification: native/core/src/fill/row.rs, orientation.rs, lines/scalar.rs.

#pragma once

#include "resize.h"

// Pixels of a block of threads: written to the tensor in the order of its memory, whatever the order of its axes.
struct Row {
  Place place;
  u8 values[3][BLOCK];
};

// A pixel of a window, by its number, in the order of the window's channels.
DEVICE Pixel window_pixel(const Batch &batch, const Place &place, i32 number) {
  const Packet &packet = place.packet(batch);
  Pixel pixel;
  if (packet.kind == PIXELS) {
    const u8 *from = (const u8 *)(&packet + 1) + number;
    for (i32 c = 0; c < 3; c++)
      pixel.values[c] = c < batch.channels ? from[c * (batch.width * batch.height)] : 0;
    return pixel;
  }
  i32 x = number % batch.width, y = number / batch.width;
  if (packet.flip & 1)
    x = batch.width - 1 - x;
  if (packet.flip & 2)
    y = batch.height - 1 - y;
  x -= packet.margin[0];
  y -= packet.margin[1];
  if (x < 0 || y < 0 || x >= packet.visible[0] || y >= packet.visible[1])
    return {{batch.background[0], batch.background[1], batch.background[2]}};
  bool is_turned = packet.orientation & 4;
  i32 column = is_turned ? y : x, row = is_turned ? x : y;
  if (packet.orientation & 1)
    column = packet.axes[0].len - 1 - column;
  if (packet.orientation & 2)
    row = packet.axes[1].len - 1 - row;
  pixel = resized_pixel(batch, place, packet, column, row);
  return batch.is_reversed ? Pixel{{pixel.values[2], pixel.values[1], pixel.values[0]}} : pixel;
}

DEVICE void make_pixels(const Batch &batch, Row &shared) {
  Place place = find_place(batch);
  if (threadIdx.x == 0)
    shared.place = place;
  if (place.thread_number() >= batch.width * batch.height)
    return;
  Pixel pixel = window_pixel(batch, place, place.thread_number());
  for (i32 c = 0; c < 3; c++)
    shared.values[c][threadIdx.x] = pixel.values[c];
}

// The first plane of the window of an image.
DEVICE u8 *window_of(const Batch &batch, i32 image) {
  return batch.windows + (i64)image * (batch.channels * (batch.width * batch.height));
}

DEVICE void read_pixels(const Batch &batch, Row &shared) {
  Place place = find_place(batch);
  if (threadIdx.x == 0)
    shared.place = place;
  i32 number = place.thread_number(), pixels = batch.width * batch.height;
  if (number >= pixels)
    return;
  for (i32 c = 0; c < batch.channels; c++)
    shared.values[c][threadIdx.x] = window_of(batch, place.image)[c * pixels + number];
}

KERNEL(windows, Batch, batch) {
  Place place = find_place(batch);
  i32 number = place.thread_number(), pixels = batch.width * batch.height;
  if (number >= pixels)
    return;
  Pixel pixel = window_pixel(batch, place, number);
  for (i32 c = 0; c < 3; c++)
    if (c < batch.channels)
      window_of(batch, place.image)[c * pixels + number] = pixel.values[c];
}

DEVICE u32 bits_of(float value) {
  union {
    float value;
    u32 bits;
  } both;
  both.value = value;
  return both.bits;
}

// Drops bits of a finite number, to the nearest, ties to even.
DEVICE u32 drop_bits(u32 value, i32 bits) {
  u32 half = 1u << (bits - 1);
  return (value + half - 1 + (value >> bits & 1)) >> bits;
}

DEVICE u16 bfloat16_bits(float value) { return (u16)drop_bits(bits_of(value), 16); }

DEVICE u16 float16_bits(float value) {
  u32 bits = bits_of(value), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
  if (size >= 0x47800000) // 65536 and more, or not a number
    return (u16)(sign | (size > 0x7f800000 ? 0x7e00 : 0x7c00));
  if (size < 0x38800000) { // subnormal: the exponent tells how many bits are dropped
    i32 shift = 126 - (i32)(size >> 23);
    if (shift > 24)
      return (u16)sign;
    return (u16)(sign | drop_bits((size & 0x7fffff) | 0x800000, shift));
  }
  return (u16)(sign | drop_bits(size - 0x38000000, 13));
}

DEVICE void write_value(const Batch &batch, i64 place, i32 channel, u8 value) {
  if (batch.dtype == UINT8) {
    ((u8 *)batch.out)[place] = value;
    return;
  }
  float product = (float)value * batch.scale[channel], result = product + batch.offset[channel];
  if (batch.dtype == FLOAT32)
    ((float *)batch.out)[place] = result;
  else
    ((u16 *)batch.out)[place] = batch.dtype == FLOAT16 ? float16_bits(result) : bfloat16_bits(result);
}

DEVICE void write_pixels(const Batch &batch, Row &shared) {
  bool is_channel_last = batch.strides[1] < batch.strides[3];
  for (i32 i = threadIdx.x; i < batch.channels * BLOCK; i += BLOCK) {
    i32 channel = is_channel_last ? i % batch.channels : i / BLOCK, pixel = is_channel_last ? i / batch.channels : i % BLOCK;
    i32 number = shared.place.block * BLOCK + pixel, x = number % batch.width, y = number / batch.width;
    const i64 *strides = batch.strides;
    i64 place = shared.place.image * strides[0] + channel * strides[1] + y * strides[2] + x * strides[3];
    if (y < batch.height)
      write_value(batch, place, channel, shared.values[channel][pixel]);
  }
}

KERNEL_OF(rows, Batch, Row, make_pixels, write_pixels)
KERNEL_OF(finish, Batch, Row, read_pixels, write_pixels)
