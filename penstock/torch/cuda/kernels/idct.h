// Inverse DCT of libjpeg's integer method ("islow") at full size and at 1/2, 1/4 and 1/8, eight threads for each block: one
// for each row of coefficients, then one for each column, then one for each row of samples.
// Specification: native/core/src/jpeg/kernels/idct/scalar.rs, idct_scaled/scalar.rs.

#pragma once

#include "packet.h"

enum {
  F0211 = 1730, F0298 = 2446, F0390 = 3196, F0509 = 4176, F0541 = 4433, F0601 = 4926, F0720 = 5906, F0765 = 6270,
  F0850 = 6967, F0899 = 7373, F1061 = 8697, F1175 = 9633, F1272 = 10426, F1451 = 11893, F1501 = 12299, F1847 = 15137,
  F1961 = 16069, F2053 = 16819, F2172 = 17799, F2562 = 20995, F3072 = 25172, F3624 = 29692,
};

DEVICE i32 add(i32 a, i32 b) { return (i32)((u32)a + (u32)b); }
DEVICE i32 subtract(i32 a, i32 b) { return (i32)((u32)a - (u32)b); }
DEVICE i32 left_shift(i32 value, i32 bits) { return (i32)((u32)value << bits); }

// Rounds away `shift` bits, and saturates to 16.
DEVICE i32 narrow(i32 value, i32 shift) { return clamp(add(value, 1 << (shift - 1)) >> shift, -32768, 32767); }

DEVICE u8 to_sample(i32 value) { return (u8)(clamp(value, -128, 127) + 128); }

DEVICE u32 four_samples(const i32 *values) {
  return to_sample(values[0]) | to_sample(values[1]) << 8 | to_sample(values[2]) << 16 | (u32)to_sample(values[3]) << 24;
}

// One dimension of the full transform. Values are of 16 bits.
DEVICE void transform_eight(const i32 w[8], i32 shift, i32 out[8]) {
  i32 tmp2 = w[2] * F0541 + w[6] * (F0541 - F1847), tmp3 = w[2] * (F0541 + F0765) + w[6] * F0541;
  i32 tmp0 = left_shift((i16)(w[0] + w[4]), 13), tmp1 = left_shift((i16)(w[0] - w[4]), 13);
  i32 even[4] = {add(tmp0, tmp3), add(tmp1, tmp2), subtract(tmp1, tmp2), subtract(tmp0, tmp3)};
  i32 a = (i16)(w[3] + w[7]), b = (i16)(w[1] + w[5]);
  i32 z3 = a * (F1175 - F1961) + b * F1175, z4 = a * F1175 + b * (F1175 - F0390);
  i32 odd[4] = {
      add(w[7] * -F0899 + w[1] * (F1501 - F0899), z4),
      add(w[5] * -F2562 + w[3] * (F3072 - F2562), z3),
      add(w[5] * (F2053 - F2562) + w[3] * -F2562, z4),
      add(w[7] * (F0298 - F0899) + w[1] * -F0899, z3),
  };
  for (i32 i = 0; i < 4; i++) {
    out[i] = narrow(add(even[i], odd[i]), shift);
    out[7 - i] = narrow(subtract(even[i], odd[i]), shift);
  }
}

// One dimension, 8 to 4. The fifth coefficient has no effect on averages of two.
DEVICE void transform_four(const i32 x[8], i32 shift, i32 out[4]) {
  i32 dc = left_shift(x[0], 14), even = x[2] * F1847 - x[6] * F0765;
  i32 outer = add(dc, even), inner = subtract(dc, even);
  i32 a = subtract(x[1] * F2562 + x[3] * F0899, x[5] * F0601 + x[7] * F0509);
  i32 b = add(x[1] * F1061 - x[3] * F2172, x[5] * F1451 - x[7] * F0211);
  out[0] = narrow(add(outer, a), shift);
  out[1] = narrow(add(inner, b), shift);
  out[2] = narrow(subtract(inner, b), shift);
  out[3] = narrow(subtract(outer, a), shift);
}

DEVICE i32 odd_two(i32 x1, i32 x3, i32 x5, i32 x7) {
  return add(x1 * F3624 - x3 * F1272, subtract(x5 * F0850, x7 * F0720));
}

// One dimension, 8 to 2, not rounded. Of the even coefficients, only the first one has an effect.
DEVICE void transform_two(const i32 x[8], i32 out[2]) {
  i32 dc = left_shift(x[0], 15), odd = odd_two(x[1], x[3], x[5], x[7]);
  out[0] = add(dc, odd);
  out[1] = subtract(dc, odd);
}

// The sample of a block of one. libjpeg looks it up by its lower ten bits.
DEVICE u8 average(i32 dc, i32 quant) {
  i32 value = add((i32)((u32)dc * (u32)quant), 4) >> 3;
  return (u8)clamp((left_shift(value, 22) >> 22) + 128, 0, 255);
}

// Of the coefficients of a block of threads. The odd distances keep the threads of a warp in different memory banks.
struct Transform {
  Place place;
  i32 values[BLOCK / 8][8][9];
  u8 is_used[BLOCK / 8][8]; // whether a row has a coefficient that is not 0
};

// What a thread transforms: a row or column of a block, which has `side` x `side` samples; 0 if there is no such block.
struct Line {
  i32 block, line; // the number of the block in `Transform`, and of the row or column in it
  i32 number, c;   // of the block in the image, and of its component
  i32 side;
  const Packet &packet;

  DEVICE_METHOD Line(const Batch &batch, const Place &place)
      : block(threadIdx.x / 8), line(threadIdx.x % 8), number(place.block * (BLOCK / 8) + block), c(0), side(0),
        packet(place.packet(batch)) {
    if (number >= packet.blocks)
      return;
    while (c + 1 < packet.components && number >= packet.component[c + 1].blocks)
      c++;
    side = packet.component[c].block;
  }

  DEVICE_METHOD const i16 *coefficients(const Batch &batch, const Place &place) const {
    return batch.coefficients + 64 * (place.base(batch, BLOCKS) + number);
  }

  DEVICE_METHOD const i16 *quant() const { return (const i16 *)((const u8 *)&packet + packet.quant_at) + 64 * c; }
};

DEVICE void dequantise_rows(const Batch &batch, Transform &shared) {
  Place place = find_place(batch);
  if (threadIdx.x == 0)
    shared.place = place;
  Line own(batch, place);
  if (own.side < 2)
    return;
  Eight row = ((const Eight *)own.coefficients(batch, place))[own.line], quant = ((const Eight *)own.quant())[own.line];
  i32 used = 0;
  for (i32 i = 0; i < 8; i++) {
    shared.values[own.block][own.line][i] = (i16)((u32)(i32)row.values[i] * (u32)(i32)quant.values[i]);
    used |= row.values[i];
  }
  shared.is_used[own.block][own.line] = used != 0;
}

DEVICE void transform_columns(const Batch &batch, Transform &shared) {
  Line own(batch, shared.place);
  if (own.side < 2)
    return;
  i32 x[8], out[8], below = 0;
  for (i32 i = 0; i < 8; i++) {
    x[i] = shared.values[own.block][i][own.line];
    if (i > 0 && (i != 4 || own.side != 4)) // the fifth row has no effect on averages of two
      below |= shared.is_used[own.block][i];
  }
  if (own.side == 2) {
    transform_two(x, out);
  } else if (below == 0) { // the short cut of libjpeg-turbo: it equals the transform, but wraps instead of saturating
    for (i32 i = 0; i < 8; i++)
      out[i] = (i16)((u32)x[0] << 2);
  } else if (own.side == 4) {
    transform_four(x, 12, out);
  } else {
    transform_eight(x, 11, out);
  }
  for (i32 i = 0; i < 8; i++)
    if (i < own.side)
      shared.values[own.block][i][own.line] = out[i];
}

DEVICE void transform_rows(const Batch &batch, Transform &shared) {
  Line own(batch, shared.place);
  if (own.line >= own.side)
    return;
  const Component &component = own.packet.component[own.c];
  i32 columns = component.end_column - component.first_column, place = own.number - component.blocks;
  u8 *out = batch.samples + shared.place.base(batch, SAMPLES) + component.samples;
  out += (i64)(place / columns * own.side + own.line) * (columns * own.side) + place % columns * own.side;
  if (own.side == 1) {
    *out = average(*own.coefficients(batch, shared.place), *own.quant());
    return;
  }
  i32 x[8], result[8];
  for (i32 i = 0; i < 8; i++)
    x[i] = shared.values[own.block][own.line][i];
  if (own.side == 2) {
    x[0] = add(x[0], 1 << 12) >> 13; // in 32 bits
    for (i32 i = 1; i < 8; i += 2)
      x[i] = narrow(x[i], 13);
    transform_two(x, result);
    for (i32 i = 0; i < 2; i++)
      out[i] = to_sample(narrow(result[i], 20));
    return;
  }
  // Stores are aligned: in planes before this one, blocks have at least half its side.
  if (own.side == 4) {
    transform_four(x, 19, result);
    *(u32 *)out = four_samples(result);
  } else {
    transform_eight(x, 18, result);
    *(u64 *)out = (u64)four_samples(result + 4) << 32 | four_samples(result);
  }
}

KERNEL_OF(idct, Batch, Transform, dequantise_rows, transform_columns, transform_rows)
