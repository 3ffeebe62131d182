// Upsampling and colour of the region, one pixel for each thread. Specification: native/core/src/jpeg/sample_strips.rs,
// kernels/upsample/scalar.rs, kernels/color/scalar.rs; luma: native/core/src/fill/mode.rs.

#pragma once

#include "packet.h"

enum Upsample { REPEAT, H2V1, H1V2, H2V2 };

// The samples of a component that were decoded.
struct Plane {
  const u8 *samples;
  const Component *component;
  i64 pitch;

  // Columns outside of the component repeat its first and last one.
  DEVICE_METHOD i32 at(i32 x, i32 y) const {
    x = clamp(x, 0, component->width - 1) - component->block * component->first_column;
    return samples[(i64)(y - component->block * component->first_row) * pitch + x];
  }
};

DEVICE i32 upsampled(const Plane &plane, i32 x, i32 y) {
  const Component &component = *plane.component;
  i32 column = x / component.across, row = y / component.down;
  if (component.upsample == REPEAT)
    return plane.at(column, row);
  bool is_lower = y % component.down * 2 >= component.down, is_right = x % 2 == 1;
  i32 far = is_lower ? least(row + 1, component.height - 1) : most(row - 1, 0);
  if (component.upsample == H1V2)
    return (3 * plane.at(x, row) + plane.at(x, far) + (is_lower ? 2 : 1)) >> 2;
  i32 beside = is_right ? column + 1 : column - 1;
  if (component.upsample == H2V1)
    return (3 * plane.at(column, row) + plane.at(beside, row) + (is_right ? 2 : 1)) >> 2;
  i32 near = 3 * plane.at(column, row) + plane.at(column, far);
  i32 other = 3 * plane.at(beside, row) + plane.at(beside, far);
  return (3 * near + other + (is_right ? 7 : 8)) >> 4;
}

KERNEL(color) {
  const Packet &packet = packet_of(batch);
  i64 number = thread_number(), pixels = (i64)packet.width * packet.height;
  if (packet.kind != SEGMENTS || number >= pixels)
    return;
  i32 x = packet.x + (i32)(number % packet.width), y = packet.y + (i32)(number / packet.width);
  i32 values[3] = {0, 0, 0};
  for (i32 c = 0; c < packet.components; c++) {
    const Component &component = packet.component[c];
    Plane plane = {batch.samples + base_of(batch, SAMPLES) + component.samples, &component,
                   (i64)(component.end_column - component.first_column) * component.block};
    values[c] = upsampled(plane, x, y);
  }
  i32 red = values[0], green = values[1], blue = values[2];
  if (packet.color == 0) {
    green = blue = red;
  } else if (packet.color == 1) {
    i32 luma = values[0], cb = values[1] - 128, cr = values[2] - 128, half = 1 << 15;
    red = clamp(luma + ((91881 * cr + half) >> 16), 0, 255);
    green = clamp(luma + ((-22554 * cb - 46802 * cr + half) >> 16), 0, 255);
    blue = clamp(luma + ((116130 * cb + half) >> 16), 0, 255);
  }
  u8 *out = batch.rgb + base_of(batch, RGB) + number;
  if (packet.planes == 1) {
    out[0] = (u8)((19595 * red + 38470 * green + 7471 * blue + 0x8000) >> 16);
    return;
  }
  out[0] = (u8)red;
  out[pixels] = (u8)green;
  out[2 * pixels] = (u8)blue;
}
