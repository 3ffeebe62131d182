// Rows of the batch: the window of each picture with its background and flips, and then its values as the tensor's dtype.
// Specification: native/core/src/fill/row.rs, orientation.rs, lines/scalar.rs.

#pragma once

#include "packet.h"

// The value of one pixel of a window.
DEVICE u8 window_value(const Batch &batch, const Packet &packet, i32 channel, i32 x, i32 y) {
  if (packet.flip & 1)
    x = batch.width - 1 - x;
  if (packet.flip & 2)
    y = batch.height - 1 - y;
  x -= packet.margin[0];
  y -= packet.margin[1];
  if (x < 0 || y < 0 || x >= packet.visible[0] || y >= packet.visible[1])
    return batch.background[channel];
  i32 width = packet.axes[0].len, height = packet.axes[1].len;
  if (packet.orientation & 4) {
    i32 row = x;
    x = y;
    y = row;
  }
  if (packet.orientation & 1)
    x = width - 1 - x;
  if (packet.orientation & 2)
    y = height - 1 - y;
  i32 plane = batch.is_reversed ? 2 - channel : channel;
  return batch.pictures[base_of(batch, PICTURE) + ((i64)plane * height + y) * width + x];
}

KERNEL(windows) {
  i64 number = thread_number(), pixels = (i64)batch.width * batch.height;
  if (number >= batch.channels * pixels)
    return;
  const Packet &packet = packet_of(batch);
  u8 value;
  if (packet.kind == PIXELS) {
    value = ((const u8 *)&packet)[sizeof(Packet) + number];
  } else {
    i32 channel = (i32)(number / pixels), y = (i32)(number % pixels / batch.width), x = (i32)(number % batch.width);
    value = window_value(batch, packet, channel, x, y);
  }
  batch.windows[(i64)blockIdx.y * batch.channels * pixels + number] = value;
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

KERNEL(finish) {
  i64 number = thread_number(), pixels = (i64)batch.width * batch.height;
  if (number >= batch.channels * pixels)
    return;
  i32 channel = (i32)(number / pixels), y = (i32)(number % pixels / batch.width), x = (i32)(number % batch.width);
  u8 value = batch.windows[(i64)blockIdx.y * batch.channels * pixels + number];
  i64 place = blockIdx.y * batch.strides[0] + channel * batch.strides[1] + y * batch.strides[2] + x * batch.strides[3];
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
