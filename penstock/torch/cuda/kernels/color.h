// Upsampling and colour of the region, four pixels of a row for each thread. Specification:
// native/core/src/jpeg/sample_strips.rs, kernels/upsample/scalar.rs, kernels/color/scalar.rs; luma: native/core/src/fill/mode.rs.

#pragma once

#include "packet.h"

// Triangle filters for components of half the width, half the height, or both; without a filter, samples are repeated.
enum Upsample { REPEAT = 0, H2V1 = 1, H1V2 = 2, H2V2 = H2V1 | H1V2 };

// Without a division where most components need none.
DEVICE i32 divided(i32 value, i32 by) { return by == 1 ? value : value / by; }

// Upsamples a component to the pixels from `left` to `last`, at most four, of the row `y`. The others repeat the last one.
DEVICE void upsample(const Component &component, const u8 *samples, i32 left, i32 last, i32 y, i32 out[4]) {
  i32 kind = component.upsample, pitch = (component.end_column - component.first_column) * component.block;
  i32 by_columns = kind & H2V1, by_rows = kind >> 1, is_lower = y & by_rows, row = divided(y, component.down);
  i32 far = clamp(row + 2 * is_lower - by_rows, 0, component.height - 1);
  samples -= component.block * component.first_column;
  const u8 *near_row = samples + (i64)(row - component.block * component.first_row) * pitch;
  const u8 *far_row = samples + (i64)(far - component.block * component.first_row) * pitch;
  if (kind == REPEAT) {
    for (i32 i = 0; i < 4; i++)
      out[i] = near_row[divided(least(left + i, last), component.across)];
    return;
  }
  for (i32 i = 0; i < 4; i++) {
    i32 x = least(left + i, last), is_right = x & by_columns, column = x >> by_columns;
    i32 beside = clamp(column + 2 * is_right - by_columns, 0, component.width - 1);
    // In one direction only, both samples of the other one are the same, and all is 4 times as large.
    i32 near = 3 * near_row[column] + far_row[column], other = 3 * near_row[beside] + far_row[beside];
    i32 half = by_columns & by_rows ? 8 - is_right : 4 + 4 * (is_right | is_lower);
    out[i] = (3 * near + other + half) >> 4;
  }
}

struct Color {
  i32 red, green, blue;
};

DEVICE Color color_of(i32 kind, i32 first, i32 second, i32 third) {
  if (kind != 1)
    return {first, second, third};
  i32 cb = second - 128, cr = third - 128, half = 1 << 15;
  return {
      clamp(first + ((91881 * cr + half) >> 16), 0, 255),
      clamp(first + ((-22554 * cb - 46802 * cr + half) >> 16), 0, 255),
      clamp(first + ((116130 * cb + half) >> 16), 0, 255),
  };
}

KERNEL(color, Batch, batch) {
  Place place = find_place(batch);
  const Packet &packet = place.packet(batch);
  i32 pitch = padded(packet.width), number = place.thread_number();
  i32 row = number / (pitch / 4), left = number % (pitch / 4) * 4;
  if (row >= packet.height)
    return;
  i32 values[3][4];
  for (i32 c = 0; c < 3; c++) {
    const Component &component = packet.component[packet.color == 0 ? 0 : c]; // gray has one
    const u8 *samples = batch.samples + place.base(batch, SAMPLES) + component.samples;
    upsample(component, samples, packet.x + left, packet.x + packet.width - 1, packet.y + row, values[c]);
  }
  u32 red = 0, green = 0, blue = 0;
  for (i32 i = 0; i < 4; i++) {
    Color color = color_of(packet.color, values[0][i], values[1][i], values[2][i]);
    if (packet.planes == 1)
      color.red = (19595 * color.red + 38470 * color.green + 7471 * color.blue + 0x8000) >> 16;
    red |= (u32)color.red << 8 * i;
    green |= (u32)color.green << 8 * i;
    blue |= (u32)color.blue << 8 * i;
  }
  i64 plane = (i64)pitch * packet.height;
  u8 *out = batch.rgb + place.base(batch, RGB) + (i64)row * pitch + left;
  *(u32 *)out = red;
  if (packet.planes == 1)
    return;
  *(u32 *)(out + plane) = green;
  *(u32 *)(out + 2 * plane) = blue;
}
