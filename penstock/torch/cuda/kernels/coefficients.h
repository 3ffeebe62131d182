// Reads coefficients that are stored without a serial code (native/core/src/jpeg/coefficients): a block of threads has a
// segment, up to 64 blocks of a row of blocks.
//
// One thread finds where the head of each block begins. Widths, masks, values and DC coefficients are then read by all
// threads: the place of each is a sum of lengths that are known. Positions are bounded by the longest heads, masks and
// values, which shared memory has room for, whatever the bytes are. A segment that is not exactly as long as what was read
// sets the image's status.

#pragma once

#include "coefficient_tables.h"
#include "packet.h"

enum { GROUPS = 8, RUN_BLOCKS = 16, RUNS = 4, SEGMENT_BLOCKS = 64 };
enum { WIDEST = 14, RAW_MASK = 256 };
enum { MOST_DC_NBYTES = 256, MOST_AC_NBYTES = 8448 }; // packet.rs checks the second

// What a block of threads shares. Arrays of blocks are zeros behind the segment's last one.
struct SegmentParts {
  Place place;
  RecordSegment segment;
  i32 is_damaged;
  u8 ac[MOST_AC_NBYTES + 2], dc[MOST_DC_NBYTES + 2]; // two bytes more than there are may be read
  u8 head_bits[RUNS][GROUPS + 1];                    // of the widths of a block that has so many groups
  u16 heads[SEGMENT_BLOCKS];                         // where the widths of each block begin
  u8 groups[SEGMENT_BLOCKS];
  u8 has_own_head[SEGMENT_BLOCKS];
  u8 widths[SEGMENT_BLOCKS][GROUPS];
  u16 masks[SEGMENT_BLOCKS][GROUPS];
  i32 mask_bits[SEGMENT_BLOCKS], raw_masks[SEGMENT_BLOCKS], value_bits[SEGMENT_BLOCKS];
  i32 masks_at, values_at;
  u16 dc_codes[SEGMENT_BLOCKS];
  i32 is_large[SEGMENT_BLOCKS], differences[SEGMENT_BLOCKS];
  i16 dc_values[SEGMENT_BLOCKS];

  DEVICE_METHOD i32 is_other() const { return segment.component > 0; }

  DEVICE_METHOD i32 runs() const { return (segment.count + RUN_BLOCKS - 1) / RUN_BLOCKS; }

  DEVICE_METHOD const Profile &profile(i32 number) const { return PROFILES[15 * is_other() + number - 1]; }

  DEVICE_METHOD const MaskCodes &mask_codes(i32 group, i32 width) const {
    return MASK_CODES[64 * is_other() + 8 * group + least(width, 8) - 1];
  }
};

// The nibble of a run.
DEVICE i32 nibble(const u8 *bytes, i32 run) { return bytes[run / 2] >> (run % 2 * 4) & 15; }

// `count` bits, at most 15, from a bit on.
DEVICE i32 bits_at(const u8 *bytes, i32 at, i32 count) {
  const u8 *first = bytes + (at >> 3);
  u32 word = first[0] | first[1] << 8 | first[2] << 16;
  return (i32)(word >> (at & 7) & ((1u << count) - 1));
}

DEVICE i32 sum_before(const i32 *values, i32 end) {
  i32 sum = 0;
  for (i32 i = 0; i < end; i++)
    sum += values[i];
  return sum;
}

DEVICE void load_segment(const Batch &batch, SegmentParts &shared) {
  Place place = find_place(batch);
  const Packet &packet = place.packet(batch);
  const u8 *start = (const u8 *)&packet;
  RecordSegment segment = ((const RecordSegment *)(start + packet.segments_at))[place.block];
  const u8 *dc = start + packet.data_at + segment.at, *ac = dc + segment.dc_nbytes;
  for (i32 i = threadIdx.x; i < segment.dc_nbytes; i += BLOCK)
    shared.dc[i] = dc[i];
  for (i32 i = threadIdx.x; i < segment.ac_nbytes; i += BLOCK)
    shared.ac[i] = ac[i];
  if (threadIdx.x == 0) {
    shared.place = place;
    shared.segment = segment;
    shared.is_damaged = 0;
  }
}

DEVICE void sum_head_bits(const Batch &, SegmentParts &shared) {
  i32 run = threadIdx.x;
  if (run >= RUNS)
    return;
  i32 number = run < shared.runs() && shared.segment.ac_nbytes > 0 ? nibble(shared.ac, run) : 0;
  shared.head_bits[run][0] = 0;
  for (i32 group = 0; group < GROUPS; group++)
    shared.head_bits[run][group + 1] =
        (u8)(number > 0 ? shared.head_bits[run][group] + shared.profile(number).extra_bits[group] : 0);
}

// Finds the heads of all blocks. The length of a head depends on its number of groups.
DEVICE void find_heads(SegmentParts &shared) {
  i32 count = shared.segment.count, at = shared.segment.ac_nbytes > 0 ? 8 * ((shared.runs() + 1) / 2) : 0;
  for (i32 from = 0; from < SEGMENT_BLOCKS; from += RUN_BLOCKS) {
    i32 run = from / RUN_BLOCKS, to = least(from + RUN_BLOCKS, count);
    i32 number = from < count && shared.segment.ac_nbytes > 0 ? nibble(shared.ac, run) : 0;
    i32 bits = number > 0 ? shared.profile(number).count_bits : 0;
    i32 first_count = number > 0 ? shared.profile(number).first_count : 0;
    i32 code_at = at;
    at += most(to - from, 0) * bits;
    for (i32 block = from; block < from + RUN_BLOCKS; block++) {
      if (block >= to || number == 0) {
        shared.groups[block] = shared.has_own_head[block] = 0;
        shared.heads[block] = 0;
        continue;
      }
      i32 code = bits_at(shared.ac, code_at, bits);
      code_at += bits;
      bool has_own = code == (1 << bits) - 1;
      i32 groups = has_own ? bits_at(shared.ac, at, 4) : first_count + code;
      at += has_own ? 4 : 0;
      if (groups > GROUPS) {
        shared.is_damaged = 1;
        groups = 0;
      }
      shared.groups[block] = (u8)groups;
      shared.has_own_head[block] = has_own;
      shared.heads[block] = (u16)at;
      at += has_own ? 4 * groups : shared.head_bits[run][groups];
    }
  }
  shared.masks_at = at;
}

// Where the values of DC coefficients begin, in bytes.
DEVICE i32 dc_values_at(const SegmentParts &shared) { return 2 + (shared.runs() + 1) / 2; }

// The values of DC coefficients without what is added to large ones.
DEVICE void read_dc_code(SegmentParts &shared, i32 block) {
  shared.is_large[block] = shared.dc_codes[block] = 0;
  if (block >= shared.segment.count)
    return;
  i32 run = block / RUN_BLOCKS, width = nibble(shared.dc + 2, run);
  i32 at = 8 * dc_values_at(shared) + block % RUN_BLOCKS * width;
  for (i32 i = 0; i < run; i++)
    at += RUN_BLOCKS * nibble(shared.dc + 2, i);
  i32 code = bits_at(shared.dc, at, width);
  shared.dc_codes[block] = (u16)code;
  shared.is_large[block] = width > 0 && code == (1 << width) - 1;
}

DEVICE void find_heads_and_dc(const Batch &, SegmentParts &shared) {
  if (threadIdx.x == 0)
    find_heads(shared);
  else if (threadIdx.x >= SEGMENT_BLOCKS)
    read_dc_code(shared, threadIdx.x - SEGMENT_BLOCKS);
}

DEVICE void read_widths(SegmentParts &shared, i32 block) {
  i32 run = block / RUN_BLOCKS, groups = shared.groups[block], at = shared.heads[block], mask_bits = 0;
  bool has_own = shared.has_own_head[block];
  for (i32 group = 0; group < GROUPS; group++) {
    i32 width = 0;
    if (group < groups) {
      const Profile &profile = shared.profile(nibble(shared.ac, run));
      i32 bits = has_own ? 4 : profile.extra_bits[group];
      width = bits_at(shared.ac, at, bits) + (has_own ? 0 : profile.least[group]);
      at += bits;
    }
    if (width > WIDEST) {
      shared.is_damaged = 1;
      width = 0;
    }
    shared.widths[block][group] = (u8)width;
    mask_bits += width > 0 ? shared.mask_codes(group, width).bits : 0;
  }
  shared.mask_bits[block] = mask_bits;
}

// The differences of DC coefficients from the block before.
DEVICE void read_dc_difference(SegmentParts &shared, i32 block) {
  i32 count = shared.segment.count, bits = 0;
  for (i32 run = 0; run < shared.runs(); run++)
    bits += nibble(shared.dc + 2, run) * least((i32)RUN_BLOCKS, count - RUN_BLOCKS * run);
  i32 large_at = dc_values_at(shared) + (bits + 7) / 8;
  u32 value = shared.dc_codes[block];
  if (shared.is_large[block])
    value += shared.dc[large_at + sum_before(shared.is_large, block)];
  value &= 0xffff;
  shared.differences[block] = (i16)(value >> 1 ^ (0 - (value & 1)));
  if (block == 0 && large_at + sum_before(shared.is_large, count) != shared.segment.dc_nbytes)
    shared.is_damaged = 1;
}

DEVICE void read_widths_and_dc(const Batch &, SegmentParts &shared) {
  if (threadIdx.x < SEGMENT_BLOCKS)
    read_widths(shared, threadIdx.x);
  else
    read_dc_difference(shared, threadIdx.x - SEGMENT_BLOCKS);
}

DEVICE void read_masks(SegmentParts &shared, i32 block) {
  i32 at = shared.masks_at + sum_before(shared.mask_bits, block), raw = 0;
  for (i32 group = 0; group < GROUPS; group++) {
    i32 width = shared.widths[block][group], mask = 0;
    if (width > 0) {
      MaskCodes codes = shared.mask_codes(group, width);
      i32 code = bits_at(shared.ac, at, codes.bits);
      bool is_raw = code == (1 << codes.bits) - 1;
      mask = is_raw ? (i32)RAW_MASK : MASKS[codes.first + code];
      at += codes.bits;
      raw += is_raw;
    }
    shared.masks[block][group] = (u16)mask;
  }
  shared.raw_masks[block] = raw;
}

DEVICE void read_masks_and_sum_dc(const Batch &, SegmentParts &shared) {
  if (threadIdx.x < SEGMENT_BLOCKS) {
    read_masks(shared, threadIdx.x);
    return;
  }
  i32 block = threadIdx.x - SEGMENT_BLOCKS;
  i32 first = shared.dc[0] | shared.dc[1] << 8;
  shared.dc_values[block] = (i16)(first + sum_before(shared.differences, block + 1));
}

DEVICE void read_raw_masks(const Batch &, SegmentParts &shared) {
  i32 block = threadIdx.x;
  if (block == SEGMENT_BLOCKS)
    shared.values_at = shared.masks_at + sum_before(shared.mask_bits, SEGMENT_BLOCKS);
  if (block >= SEGMENT_BLOCKS)
    return;
  i32 left = shared.segment.ac_nbytes - sum_before(shared.raw_masks, block), bits = 0;
  for (i32 group = 0; group < GROUPS; group++) {
    i32 mask = shared.masks[block][group];
    if (mask == RAW_MASK)
      shared.masks[block][group] = (u16)(mask = --left >= 0 ? shared.ac[left] : 0);
    bits += shared.widths[block][group] * count_ones(mask);
  }
  shared.value_bits[block] = bits;
}

// Where the coefficients of a block are written; null if the block is not needed.
DEVICE i16 *block_of_image(const Batch &batch, const SegmentParts &shared, i32 number) {
  const RecordSegment &segment = shared.segment;
  const Component &component = shared.place.packet(batch).component[segment.component];
  i32 x = segment.column + number - component.first_column, y = segment.row - component.first_row;
  i32 columns = component.end_column - component.first_column;
  if (number >= segment.count || (u32)x >= (u32)columns)
    return nullptr;
  i64 blocks = shared.place.base(batch, BLOCKS) + component.blocks + y * columns + x;
  return batch.coefficients + 64 * blocks;
}

// Each thread writes four groups of a block.
DEVICE void read_values(const Batch &batch, SegmentParts &shared) {
  i32 block = threadIdx.x / 2, first = threadIdx.x % 2 * (GROUPS / 2);
  i32 at = shared.values_at + sum_before(shared.value_bits, block);
  i16 *coefficients = block_of_image(batch, shared, block);
  for (i32 group = 0; group < first; group++)
    at += shared.widths[block][group] * count_ones(shared.masks[block][group]);
  for (i32 group = first; group < first + GROUPS / 2 && coefficients; group++) {
    i32 width = shared.widths[block][group], mask = shared.masks[block][group], half = 1 << width >> 1;
    for (i32 i = 0; i < 8; i++) {
      bool is_set = mask >> i & 1;
      i32 value = is_set ? bits_at(shared.ac, at, width) - half : 0;
      coefficients[NATURAL[8 * group + i]] = (i16)(is_set && value >= 0 ? value + 1 : value);
      at += is_set ? width : 0;
    }
    if (group == 0)
      coefficients[0] = shared.dc_values[block];
  }
  if (threadIdx.x > 0)
    return;
  i32 end = shared.values_at + sum_before(shared.value_bits, SEGMENT_BLOCKS);
  i32 nbytes = (end + 7) / 8 + sum_before(shared.raw_masks, SEGMENT_BLOCKS);
  if (shared.is_damaged || nbytes != shared.segment.ac_nbytes)
    batch.status[shared.place.image] = 1;
}

KERNEL_OF(coefficients, Batch, SegmentParts, load_segment, sum_head_bits, find_heads_and_dc, read_widths_and_dc,
          read_masks_and_sum_dc, read_raw_masks, read_values)
