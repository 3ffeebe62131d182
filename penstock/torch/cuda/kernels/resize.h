// The resize: weights in double precision, then two passes in integers. Specification: native/core/src/resample/ (taps.rs,
// filter.rs, scalar.rs). Compiled without contraction of multiplications and additions, so that weights are the same.

#pragma once

#include "packet.h"

enum Filter { BOX, BILINEAR, BICUBIC, LANCZOS, CV2_LINEAR, CV2_AREA, CV2_AREA_LINEAR, CV2_NEAREST };
enum Passes { NO_PASSES, CONVEX_DOWN_FIRST, CONVEX_ACROSS_FIRST, LOBED_ACROSS_FIRST, LOBED_DOWN_FIRST };

DEVICE bool is_convex(i32 filter) { return filter != BICUBIC; }

DEVICE i64 truncated(double value) { return value > 0 ? (i64)value : 0; }

// The weights of one output pixel, not normalised: of `count` source pixels from `start` on.
struct Weights {
  i32 filter;
  i32 start, count;
  double center, narrow; // of Pillow's filters
  double low, high;      // of CV2_AREA: what the output pixel covers
  double second;         // of filters of two pixels: the weight of the second one

  DEVICE_METHOD double at(i32 i) const {
    if (filter == CV2_AREA) {
      double tap = start + i;
      double covered = (high < tap + 1.0 ? high : tap + 1.0) - (low > tap ? low : tap);
      return covered > 1e-3 ? covered : 0.0;
    }
    if (filter >= CV2_LINEAR)
      return count == 1 ? 1.0 : i == 0 ? 1.0 - second : second;
    double x = ((double)(start + i) - center + 0.5) * narrow;
    if (filter == BOX)
      return x > -0.5 && x <= 0.5 ? 1.0 : 0.0;
    x = x < 0 ? -x : x;
    if (filter == BILINEAR)
      return 1.0 - x > 0.0 ? 1.0 - x : 0.0;
    const double a = -0.5;
    if (x < 1.0)
      return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
    return x < 2.0 ? (((x - 5.0) * x + 8.0) * x - 4.0) * a : 0.0;
  }
};

DEVICE double round_down(double value) {
  double whole = (double)(i64)value;
  return whole > value ? whole - 1.0 : whole;
}

// To the nearest integer, ties to the even one; for values below 2^52.
DEVICE double round_even(double value) {
  double whole = round_down(value), rest = value - whole;
  bool is_up = rest > 0.5 || (rest == 0.5 && ((i64)whole & 1));
  return is_up ? whole + 1.0 : whole;
}

DEVICE Weights weigh_two(const Axis &axis, double scale, i32 output) {
  Weights weights = {axis.filter, 0, 1, 0, 0, 0, 0, 0};
  double first = round_down(output * scale), share = 0.0;
  if (axis.filter == CV2_LINEAR) {
    float x = (float)((output + 0.5) * scale - 0.5), whole = (float)round_down(x);
    first = whole;
    share = (double)(x - whole);
  } else if (axis.filter == CV2_AREA_LINEAR) {
    double inverse = (double)axis.target / (double)axis.source;
    float part = (float)((double)output + 1.0 - (first + 1.0) * inverse);
    share = part > 0 ? (double)(part - (float)(i64)part) : 0.0;
  }
  if (first < 0.0 || truncated(first) >= axis.source - 1) {
    weights.start = (i32)least(truncated(first), (i64)axis.source - 1);
    return weights;
  }
  weights.start = (i32)first;
  weights.count = 2;
  weights.second = round_even(share * 2048.0) / 2048.0;
  return weights;
}

DEVICE Weights weigh(const Axis &axis, i32 output) {
  double source = axis.source, target = axis.target;
  double scale = axis.filter >= CV2_LINEAR ? 1.0 / (target / source) : source / target;
  if (axis.filter == CV2_LINEAR || axis.filter == CV2_AREA_LINEAR || axis.filter == CV2_NEAREST)
    return weigh_two(axis, scale, output);
  Weights weights = {axis.filter, 0, 1, 0, 0, 0, 0, 0};
  i64 last = axis.source - 1, end;
  if (axis.filter == CV2_AREA) {
    weights.low = output * scale;
    weights.high = weights.low + scale < source ? weights.low + scale : source;
    weights.start = (i32)least(truncated(weights.low), last);
    end = truncated(-round_down(-weights.high));
  } else {
    double stretch = scale > 1.0 ? scale : 1.0;
    double support = (axis.filter == BOX ? 0.5 : axis.filter == BILINEAR ? 1.0 : 2.0) * stretch;
    weights.center = (output + 0.5) * scale;
    weights.narrow = 1.0 / stretch;
    weights.start = (i32)least(truncated(weights.center - support + 0.5), last);
    end = truncated(weights.center + support + 0.5);
  }
  weights.count = (i32)(clamp(end, (i64)weights.start + 1, (i64)axis.source) - weights.start);
  return weights;
}

// The taps of an axis: the first source sample of each output pixel, then `most` weights for each.
struct Taps {
  i32 *starts, *weights;
};

DEVICE Taps taps_of(const Batch &batch, const Packet &packet, i32 axis) {
  i32 *starts = batch.taps + base_of(batch, TAPS);
  if (axis == 1)
    starts += (i64)packet.axes[0].len * (packet.axes[0].most + 2);
  return {starts, starts + packet.axes[axis].len};
}

KERNEL(taps) {
  const Packet &packet = packet_of(batch);
  i64 number = thread_number();
  if (packet.kind != SEGMENTS || packet.passes == NO_PASSES || number >= packet.axes[0].len + packet.axes[1].len)
    return;
  i32 which = number >= packet.axes[0].len;
  const Axis &axis = packet.axes[which];
  i32 place = (i32)number - (which ? packet.axes[0].len : 0);
  i32 output = axis.is_mirrored ? axis.target - 1 - (axis.start + place) : axis.start + place;
  Weights weights = weigh(axis, output);
  double total = 0;
  for (i32 i = 0; i < weights.count; i++)
    total += weights.at(i);
  Taps taps = taps_of(batch, packet, which);
  i32 *out = taps.weights + (i64)place * axis.most;
  for (i32 i = 0; i < axis.most; i++)
    out[i] = 0;
  i32 step = axis.step_and_phase >> 8, phase = axis.step_and_phase & 0xff;
  i32 start = axis.is_mirrored ? axis.source - weights.start - weights.count : weights.start;
  i32 first = (start + phase) / step;
  taps.starts[place] = first - axis.needed;
  double one = (double)(1 << axis.shift), sum = 0;
  double factor = one / total;
  i32 before = 0;
  for (i32 i = 0; i < weights.count; i++) {
    i32 weight;
    if (!is_convex(axis.filter)) {
      double exact = weights.at(i) / total * one;
      weight = (i32)(exact + (exact < 0 ? -0.5 : 0.5));
    } else if (i + 1 < weights.count) {
      sum += weights.at(i); // the running sum is rounded, so that the total is exact
      i32 now = (i32)(sum * factor + 0.5);
      weight = now - before;
      before = now;
    } else {
      weight = (1 << axis.shift) - before;
    }
    i32 pixel = start + (axis.is_mirrored ? weights.count - 1 - i : i);
    i32 average = (pixel + phase) / step - first;
    if (average < axis.most)
      out[average] += weight;
  }
}

// A sum of weighted values as the pass rounds it. `drop`: bits to drop; 0: those of lobed filters, and clip.
DEVICE i32 rounded(i32 sum, i32 drop) {
  return drop > 0 ? (sum + (1 << (drop - 1))) >> drop : clamp((sum + (1 << 21)) >> 22, 0, 255);
}

// The number of samples that have weights: those beyond the region have a weight of zero.
DEVICE i32 weighted(const Axis &axis, i32 start, i32 available) { return least(axis.most, available - start); }

KERNEL(first_pass) {
  const Packet &packet = packet_of(batch);
  if (packet.kind != SEGMENTS || packet.passes == NO_PASSES)
    return;
  const Axis &x = packet.axes[0], &y = packet.axes[1];
  bool is_down = packet.passes == CONVEX_DOWN_FIRST || packet.passes == LOBED_DOWN_FIRST;
  i32 width = is_down ? packet.width : x.len, height = is_down ? y.len : packet.height;
  i64 number = thread_number();
  if (number >= (i64)packet.planes * width * height)
    return;
  i32 column = (i32)(number % width), row = (i32)(number / width % height), plane = (i32)(number / width / height);
  const Axis &axis = is_down ? y : x;
  Taps taps = taps_of(batch, packet, is_down);
  i32 place = is_down ? row : column, start = taps.starts[place];
  const i32 *weights = taps.weights + (i64)place * axis.most;
  i64 stride = is_down ? packet.width : 1;
  const u8 *from = batch.rgb + base_of(batch, RGB) + (i64)plane * packet.width * packet.height;
  from += is_down ? (i64)start * packet.width + column : (i64)row * packet.width + start;
  i32 sum = 0, count = weighted(axis, start, is_down ? packet.height : packet.width);
  for (i32 i = 0; i < count; i++)
    sum += weights[i] * from[i * stride];
  batch.lines[base_of(batch, LINES) + number] = (i16)rounded(sum, is_convex(axis.filter) ? axis.shift - packet.fraction : 0);
}

KERNEL(second_pass) {
  const Packet &packet = packet_of(batch);
  const Axis &x = packet.axes[0], &y = packet.axes[1];
  i64 number = thread_number();
  if (packet.kind != SEGMENTS || number >= (i64)packet.planes * x.len * y.len)
    return;
  i32 column = (i32)(number % x.len), row = (i32)(number / x.len % y.len), plane = (i32)(number / x.len / y.len);
  u8 *out = batch.pictures + base_of(batch, PICTURE) + number;
  if (packet.passes == NO_PASSES) {
    *out = (batch.rgb + base_of(batch, RGB))[((i64)plane * packet.height + row) * packet.width + column];
    return;
  }
  bool is_down = packet.passes == CONVEX_ACROSS_FIRST || packet.passes == LOBED_ACROSS_FIRST;
  i32 width = is_down ? x.len : packet.width, height = is_down ? packet.height : y.len;
  const Axis &axis = is_down ? y : x;
  Taps taps = taps_of(batch, packet, is_down);
  i32 place = is_down ? row : column, start = taps.starts[place];
  const i32 *weights = taps.weights + (i64)place * axis.most;
  i64 stride = is_down ? width : 1;
  const i16 *from = batch.lines + base_of(batch, LINES) + (i64)plane * width * height;
  from += is_down ? (i64)start * width + column : (i64)row * width + start;
  i32 sum = 0, count = weighted(axis, start, is_down ? height : width);
  for (i32 i = 0; i < count; i++)
    sum += weights[i] * from[i * stride];
  *out = (u8)rounded(sum, is_convex(axis.filter) ? axis.shift + packet.fraction : 0);
}
