// Inverse DCT of libjpeg's integer method ("islow") at full size and at 1/2, 1/4 and 1/8, one block for each thread.
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

// Eight values of a block, which are loaded at once.
struct alignas(16) Eight {
  i16 values[8];
};

DEVICE i32 dequantise(const i16 *block, const i16 *quant, i32 i) { return (i16)((u32)(i32)block[i] * (u32)(i32)quant[i]); }

// One dimension of the full transform. `stride`: between the values of `x`, which are replaced.
DEVICE void transform_eight(i16 *x, i32 stride, i32 shift) {
  i32 w[8];
  for (i32 i = 0; i < 8; i++)
    w[i] = x[i * stride];
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
    x[i * stride] = (i16)narrow(add(even[i], odd[i]), shift);
    x[(7 - i) * stride] = (i16)narrow(subtract(even[i], odd[i]), shift);
  }
}

DEVICE void idct_8x8(const i16 *block, const i16 *quant, u8 *out, i64 pitch) {
  i16 work[64];
  i32 below = 0;
  for (i32 y = 0; y < 8; y++) {
    Eight row = ((const Eight *)block)[y];
    for (i32 x = 0; x < 8; x++) {
      work[8 * y + x] = (i16)dequantise(row.values, quant + 8 * y, x);
      if (y > 0)
        below |= row.values[x];
    }
  }
  if (below == 0) {
    // The short cut of libjpeg-turbo: it equals the full transform, except that it wraps instead of saturating.
    for (i32 i = 0; i < 64; i++)
      work[i] = i < 8 ? (i16)((u32)work[i] << 2) : work[i - 8];
  } else {
    for (i32 column = 0; column < 8; column++)
      transform_eight(work + column, 8, 11);
  }
  for (i32 y = 0; y < 8; y++) {
    transform_eight(work + 8 * y, 1, 18);
    u64 samples = 0;
    for (i32 x = 0; x < 8; x++)
      samples |= (u64)to_sample(work[8 * y + x]) << (8 * x);
    *(u64 *)(out + y * pitch) = samples; // at a multiple of eight: so are the sizes of all planes of such blocks
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

DEVICE void idct_4x4(const i16 *block, const i16 *quant, u8 *out, i64 pitch) {
  i32 work[4][8] = {}, below = 0;
  for (i32 i = 8; i < 64; i++)
    if (i < 32 || i >= 40)
      below |= block[i];
  for (i32 column = 0; column < 8; column++) {
    i32 x[8], result[4];
    for (i32 row = 0; row < 8; row++)
      x[row] = dequantise(block, quant, 8 * row + column);
    if (below == 0)
      result[0] = result[1] = result[2] = result[3] = (i16)((u32)x[0] << 2);
    else if (column != 4)
      transform_four(x, 12, result);
    else
      continue;
    for (i32 row = 0; row < 4; row++)
      work[row][column] = result[row];
  }
  for (i32 y = 0; y < 4; y++) {
    i32 result[4];
    transform_four(work[y], 19, result);
    for (i32 x = 0; x < 4; x++)
      out[y * pitch + x] = to_sample(result[x]);
  }
}

DEVICE i32 odd_two(i32 x1, i32 x3, i32 x5, i32 x7) {
  return add(x1 * F3624 - x3 * F1272, subtract(x5 * F0850, x7 * F0720));
}

DEVICE void idct_2x2(const i16 *block, const i16 *quant, u8 *out, i64 pitch) {
  const i32 columns[5] = {0, 1, 3, 5, 7};
  i32 halves[5][2];
  for (i32 i = 0; i < 5; i++) {
    i32 column = columns[i], x[8];
    for (i32 row = 0; row < 8; row++)
      x[row] = dequantise(block, quant, 8 * row + column);
    i32 dc = left_shift(x[0], 15), odd = odd_two(x[1], x[3], x[5], x[7]);
    halves[i][0] = add(dc, odd);
    halves[i][1] = subtract(dc, odd);
  }
  for (i32 half = 0; half < 2; half++) {
    // The first column is kept in 32 bits.
    i32 dc = left_shift(add(halves[0][half], 1 << 12) >> 13, 15);
    i32 odd = odd_two(narrow(halves[1][half], 13), narrow(halves[2][half], 13), narrow(halves[3][half], 13),
                      narrow(halves[4][half], 13));
    out[half * pitch] = to_sample(narrow(add(dc, odd), 20));
    out[half * pitch + 1] = to_sample(narrow(subtract(dc, odd), 20));
  }
}

// The average of a block. libjpeg looks it up by its lower ten bits.
DEVICE u8 idct_1x1(i32 dc, i32 quant) {
  i32 average = add((i32)((u32)dc * (u32)quant), 4) >> 3;
  return (u8)clamp((left_shift(average, 22) >> 22) + 128, 0, 255);
}

KERNEL(idct) {
  const Packet &packet = packet_of(batch);
  i64 number = thread_number();
  if (packet.kind != SEGMENTS || number >= packet.blocks)
    return;
  i32 c = packet.components - 1;
  while (c > 0 && number < packet.component[c].blocks)
    c--;
  const Component &component = packet.component[c];
  const i16 *block = batch.coefficients + 64 * (base_of(batch, BLOCKS) + number);
  const i16 *quant = (const i16 *)((const u8 *)&packet + packet.quant_at) + 64 * c;
  i32 columns = component.end_column - component.first_column, place = (i32)number - component.blocks;
  i64 pitch = (i64)columns * component.block;
  u8 *out = batch.samples + base_of(batch, SAMPLES) + component.samples;
  out += place / columns * component.block * pitch + (i64)(place % columns) * component.block;
  if (component.block == 8)
    idct_8x8(block, quant, out, pitch);
  else if (component.block == 4)
    idct_4x4(block, quant, out, pitch);
  else if (component.block == 2)
    idct_2x2(block, quant, out, pitch);
  else
    *out = idct_1x1(block[0], quant[0]);
}
