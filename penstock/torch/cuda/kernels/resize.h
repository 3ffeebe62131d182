// The resize: weights in double precision, then two passes in integers. Specification: native/core/src/resample/ (taps.rs,
// filter.rs, scalar.rs). Compiled without contraction of multiplications and additions, so that weights are the same.

#pragma once

#include "packet.h"

struct Pixel {
  u8 values[3];
};

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

// The taps of an axis: the first source sample of each output pixel, then the first weight of each, the second, and so on.
struct Taps {
  i32 *starts;
  i32 len;

  DEVICE_METHOD i32 &weight(i32 i, i32 output) const { return starts[(i + 1) * len + output]; }
};

DEVICE Taps taps_of(const Batch &batch, const Place &place, const Packet &packet, i32 axis) {
  i32 *starts = batch.taps + place.base(batch, TAPS);
  return {axis == 0 ? starts : starts + packet.axes[0].len * (packet.axes[0].most + 2), packet.axes[axis].len};
}

KERNEL(taps, Batch, batch) {
  Place block = find_place(batch);
  const Packet &packet = block.packet(batch);
  i32 number = block.thread_number();
  if (number >= packet.axes[0].len + packet.axes[1].len)
    return;
  i32 which = number >= packet.axes[0].len;
  const Axis &axis = packet.axes[which];
  i32 place = number - (which ? packet.axes[0].len : 0);
  i32 output = axis.is_mirrored ? axis.target - 1 - (axis.start + place) : axis.start + place;
  Weights weights = weigh(axis, output);
  double total = 0;
  for (i32 i = 0; i < weights.count; i++)
    total += weights.at(i);
  Taps taps = taps_of(batch, block, packet, which);
  for (i32 i = 0; i < axis.most; i++)
    taps.weight(i, place) = 0;
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
      taps.weight(average, place) += weight;
  }
}

// A sum of weighted values as the pass rounds it. `drop`: bits to drop; 0: those of lobed filters, and clip.
DEVICE i32 rounded(i32 sum, i32 drop) {
  return drop > 0 ? (sum + (1 << (drop - 1))) >> drop : clamp((sum + (1 << 21)) >> 22, 0, 255);
}

// The number of samples that have weights: those beyond the region have a weight of zero.
DEVICE i32 weighted(const Axis &axis, i32 start, i32 available) { return least(axis.most, available - start); }

// Four values of a line, which are stored at once.
struct alignas(8) Four {
  i16 values[4];
};

// The order of the passes, and what is between them: lines of `width` values, `height` of each plane.
struct Order {
  bool is_down_first;
  i32 width, height;

  DEVICE_METHOD Order(const Packet &packet)
      : is_down_first(packet.passes == CONVEX_DOWN_FIRST || packet.passes == LOBED_DOWN_FIRST),
        width(is_down_first ? packet.width : packet.axes[0].len),
        height(is_down_first ? packet.axes[1].len : packet.height) {}
};

// A thread makes four values of a line.
KERNEL(first_pass, Batch, batch) {
  Place block = find_place(batch);
  const Packet &packet = block.packet(batch);
  Order order(packet);
  i32 groups = padded(order.width) / 4, number = block.thread_number();
  i32 left = number % groups * 4, line = number / groups, row = line % order.height, plane = line / order.height;
  if (plane >= packet.planes)
    return;
  const Axis &axis = packet.axes[order.is_down_first];
  Taps taps = taps_of(batch, block, packet, order.is_down_first);
  i32 pitch = padded(packet.width), sums[4] = {0, 0, 0, 0};
  const u8 *from = batch.rgb + block.base(batch, RGB) + (i64)plane * packet.height * pitch;
  if (order.is_down_first) {
    i32 start = taps.starts[row], count = weighted(axis, start, packet.height);
    from += (i64)start * pitch + left;
    for (i32 i = 0; i < count; i++, from += pitch) {
      u32 four = *(const u32 *)from;
      for (i32 k = 0; k < 4; k++)
        sums[k] += taps.weight(i, row) * (i32)(four >> 8 * k & 0xff);
    }
  } else {
    from += (i64)row * pitch;
    for (i32 k = 0; k < 4; k++) {
      i32 column = least(left + k, order.width - 1), start = taps.starts[column];
      i32 count = weighted(axis, start, packet.width);
      for (i32 i = 0; i < count; i++)
        sums[k] += taps.weight(i, column) * from[start + i];
    }
  }
  i32 drop = is_convex(axis.filter) ? axis.shift - packet.fraction : 0;
  Four out;
  for (i32 k = 0; k < 4; k++)
    out.values[k] = (i16)rounded(sums[k], drop);
  *(Four *)(batch.lines + block.base(batch, LINES) + (i64)line * padded(order.width) + left) = out;
}

// A pixel of the picture, in the order of its planes: the second pass.
DEVICE Pixel resized_pixel(const Batch &batch, const Place &place, const Packet &packet, i32 column, i32 row) {
  Pixel pixel;
  if (packet.passes == NO_PASSES) {
    i32 pitch = padded(packet.width);
    const u8 *from = batch.rgb + place.base(batch, RGB) + (i64)row * pitch + column;
    for (i32 c = 0; c < 3; c++)
      pixel.values[c] = c < packet.planes ? from[(i64)c * packet.height * pitch] : 0;
    return pixel;
  }
  Order order(packet);
  const Axis &axis = packet.axes[!order.is_down_first];
  Taps taps = taps_of(batch, place, packet, !order.is_down_first);
  i32 output = order.is_down_first ? column : row, start = taps.starts[output];
  i32 count = weighted(axis, start, order.is_down_first ? order.width : order.height), pitch = padded(order.width);
  i32 stride = order.is_down_first ? 1 : pitch, sums[3] = {0, 0, 0};
  i64 plane = (i64)order.height * pitch;
  const i16 *from = batch.lines + place.base(batch, LINES);
  from += order.is_down_first ? (i64)row * pitch + start : (i64)start * pitch + column;
  for (i32 i = 0; i < count; i++, from += stride) {
    i32 weight = taps.weight(i, output);
    for (i32 c = 0; c < 3; c++)
      if (c < packet.planes)
        sums[c] += weight * from[c * plane];
  }
  i32 drop = is_convex(axis.filter) ? axis.shift + packet.fraction : 0;
  for (i32 c = 0; c < 3; c++)
    pixel.values[c] = (u8)rounded(sums[c], drop);
  return pixel;
}
