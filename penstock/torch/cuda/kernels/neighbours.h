// Augmentation in uint8 for which a pixel depends on others: blur, sharpening, maps of the image onto itself. Specification:
// native/core/src/pixels/ (blur.rs, warp/scalar.rs).

#pragma once

#include "augment.h"
#include "resize.h"

// The position in 0..length, reflected at the first and the last one.
DEVICE i32 reflected(i32 position, i32 length) {
  if (position >= 0 && position < length)
    return position; // without a division
  i32 period = 2 * (length - 1);
  if (period == 0)
    return 0;
  position = (position % period + period) % period;
  return least(position, period - position);
}

enum Tile { TILE_WIDTH = 64, TILE_HEIGHT = 8, LONGEST = 255 };

// A step of BLUR has the place and the number of its weights across, then of those down.
// Columns of a part of one plane, blurred down; with those that its borders need.
struct BlurTile {
  float values[TILE_HEIGHT][TILE_WIDTH + LONGEST - 1];
};

// The tile of this block: blocks go across, then down, then to the next plane.
struct TilePlace {
  i32 plane, x, y;

  DEVICE_METHOD TilePlace(const Augment &augment) {
    i32 across = (augment.width + TILE_WIDTH - 1) / TILE_WIDTH, down = (augment.height + TILE_HEIGHT - 1) / TILE_HEIGHT;
    x = blockIdx.x % across * TILE_WIDTH;
    y = blockIdx.x / across % down * TILE_HEIGHT;
    plane = blockIdx.x / across / down;
  }
};

DEVICE void blur_down(const Augment &augment, BlurTile &tile) {
  const Step &step = *steps_of(augment);
  TilePlace place(augment);
  if (place.plane >= 3)
    return;
  i32 reach = step.integers[1] / 2, half = step.integers[3] / 2, columns = TILE_WIDTH + 2 * reach;
  const float *weights = augment.weights + step.integers[2];
  const u8 *plane = planes_of(augment, step.source, step.image) + place.plane * pixels_of(augment);
  for (i32 i = threadIdx.x; i < columns * TILE_HEIGHT; i += blockDim.x) {
    i32 column = i % columns, row = i / columns;
    const u8 *from = plane + reflected(place.x + column - reach, augment.width);
    i32 y = place.y + row;
    float total = (float)from[(i64)reflected(y, augment.height) * augment.width] * weights[half];
    for (i32 away = 1; away <= half; away++) {
      i32 above = from[(i64)reflected(y - away, augment.height) * augment.width];
      i32 below = from[(i64)reflected(y + away, augment.height) * augment.width];
      total += (float)(above + below) * weights[half - away];
    }
    tile.values[row][column] = total;
  }
}

DEVICE void blur_across(const Augment &augment, BlurTile &tile) {
  const Step &step = *steps_of(augment);
  TilePlace place(augment);
  if (place.plane >= 3)
    return;
  i32 reach = step.integers[1] / 2;
  const float *weights = augment.weights + step.integers[0];
  u8 *plane = planes_of(augment, step.target, step.image) + place.plane * pixels_of(augment);
  for (i32 i = threadIdx.x; i < TILE_WIDTH * TILE_HEIGHT; i += blockDim.x) {
    i32 x = place.x + i % TILE_WIDTH, y = place.y + i / TILE_WIDTH;
    if (x >= augment.width || y >= augment.height)
      continue;
    const float *line = tile.values[i / TILE_WIDTH] + i % TILE_WIDTH + reach;
    float total = line[0] * weights[reach];
    for (i32 away = 1; away <= reach; away++)
      total += (line[-away] + line[away]) * weights[reach - away];
    float even = (total + 12582912.0f) - 12582912.0f; // half to even
    plane[(i64)y * augment.width + x] = clipped(even);
  }
}

KERNEL_OF(blur, Augment, BlurTile, blur_down, blur_across)

KERNEL(sharpen, Augment, augment) {
  const Step &step = *steps_of(augment);
  i32 number = thread_number(), pixels = pixels_of(augment);
  if (number >= 3 * pixels)
    return;
  i32 width = augment.width, x = number % width, y = number % pixels / width;
  const u8 *from = planes_of(augment, step.source, step.image) + number;
  u8 value = *from;
  if (x > 0 && y > 0 && x < width - 1 && y < augment.height - 1) {
    u32 sum = 4 * value;
    for (i32 row = -1; row <= 1; row++)
      for (i32 column = -1; column <= 1; column++)
        sum += from[(i64)row * width + column];
    value = blended((u8)((sum + 6) * 5042 >> 16), value, (float)step.numbers[0]);
  }
  planes_of(augment, step.target, step.image)[number] = value;
}

// Rounds towards zero; -1 for negative numbers and what is not a number.
DEVICE i32 whole_part(double position) {
  return position >= 0.0 ? (i32)(position < 2147483647.0 ? position : 2147483647.0) : -1;
}

// In 16 fractional bits, clipped to 32 bits.
DEVICE u32 fixed_point(double value) {
  return (u32)(i32)round_down(clamp(value * 65536.0 + 0.5, -2147483648.0, 2147483647.0));
}

enum WarpOptions { BILINEAR_WARP = 1, PROJECTIVE_WARP = 2 };

struct Position {
  double x, y;
};

DEVICE Position mapped_position(const Step &step, double x, double y) {
  const double *m = step.numbers;
  Position at = {m[0] * x + m[1] * y + m[2], m[3] * x + m[4] * y + m[5]};
  if (step.integers[0] & PROJECTIVE_WARP) {
    double below = m[6] * x + m[7] * y + 1.0;
    return {at.x / below, at.y / below};
  }
  return at;
}

struct Cell {
  i32 x, y;
};

DEVICE bool fits_fixed_point(const Step &step, double x, double y) {
  const double *m = step.numbers;
  double across = x * m[0] + y * m[1] + m[2], down = x * m[3] + y * m[4] + m[5];
  return across < 32768.0 && across > -32768.0 && down < 32768.0 && down > -32768.0;
}

// Of an affine map. Pillow adds up positions: their rounding errors are part of the result.
DEVICE Cell nearest_affine(const Augment &augment, const Step &step, i32 x, i32 y) {
  const double *m = step.numbers;
  double width = augment.width, height = augment.height;
  if (m[1] == 0.0 && m[3] == 0.0) {
    Position at = {m[2] + m[0] * 0.5, m[5] + m[4] * 0.5};
    for (i32 i = 0; i < x; i++)
      at.x += m[0];
    for (i32 i = 0; i < y; i++)
      at.y += m[4];
    return {whole_part(at.x), whole_part(at.y)};
  }
  if (fits_fixed_point(step, 0, 0) && fits_fixed_point(step, width, height) && fits_fixed_point(step, 0, height) &&
      fits_fixed_point(step, width, 0)) {
    u32 across = fixed_point(m[2] + m[0] * 0.5 + m[1] * 0.5) + fixed_point(m[0]) * x + fixed_point(m[1]) * y;
    u32 down = fixed_point(m[5] + m[3] * 0.5 + m[4] * 0.5) + fixed_point(m[3]) * x + fixed_point(m[4]) * y;
    return {(i32)across >> 16, (i32)down >> 16};
  }
  Position at = {m[2] + m[0] * 0.5 + m[1] * 0.5, m[5] + m[3] * 0.5 + m[4] * 0.5};
  for (i32 i = 0; i < y; i++)
    at = {at.x + m[1], at.y + m[4]};
  for (i32 i = 0; i < x; i++)
    at = {at.x + m[0], at.y + m[3]};
  return {whole_part(at.x), whole_part(at.y)};
}

DEVICE double between(double from, double to, double fraction) {
  double product = (to - from) * fraction;
  return from + product;
}

DEVICE Pixel bilinear_pixel(const Augment &augment, const u8 *planes, Position at, Pixel fill) {
  i32 width = augment.width, height = augment.height;
  if (!(at.x >= 0.0 && at.x < width && at.y >= 0.0 && at.y < height))
    return fill;
  at = {at.x - 0.5, at.y - 0.5};
  double left = round_down(at.x), top = round_down(at.y), across = at.x - left, down = at.y - top;
  i32 x0 = most((i32)left, 0), x1 = least((i32)left + 1, width - 1);
  i32 y0 = most((i32)top, 0), y1 = least((i32)top + 1, height - 1);
  Pixel result;
  for (i32 c = 0; c < 3; c++) {
    const u8 *upper = planes + c * pixels_of(augment) + (i64)y0 * width, *lower = upper + (i64)(y1 - y0) * width;
    double value = between(between(upper[x0], upper[x1], across), between(lower[x0], lower[x1], across), down);
    result.values[c] = (u8)value;
  }
  return result;
}

KERNEL(warp, Augment, augment) {
  const Step &step = *steps_of(augment);
  i32 number = thread_number(), pixels = pixels_of(augment);
  if (number >= pixels)
    return;
  i32 x = number % augment.width, y = number / augment.width;
  const u8 *planes = planes_of(augment, step.source, step.image);
  Pixel pixel = {{(u8)step.integers[1], (u8)step.integers[2], (u8)step.integers[3]}};
  if (step.integers[0] & BILINEAR_WARP) {
    pixel = bilinear_pixel(augment, planes, mapped_position(step, x + 0.5, y + 0.5), pixel);
  } else {
    Cell cell;
    if (step.integers[0] & PROJECTIVE_WARP) {
      Position at = mapped_position(step, x + 0.5, y + 0.5);
      cell = {whole_part(at.x), whole_part(at.y)};
    } else {
      cell = nearest_affine(augment, step, x, y);
    }
    if (cell.x >= 0 && cell.y >= 0 && cell.x < augment.width && cell.y < augment.height)
      pixel = pixel_at(planes, pixels, cell.y * augment.width + cell.x);
  }
  set_pixel(planes_of(augment, step.target, step.image), pixels, number, pixel);
}
