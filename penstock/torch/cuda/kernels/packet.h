// Packets (native/core/src/jpeg/packet/, native/core/src/fill/packet.rs), and what all kernels are given.

#pragma once

#include "grid.h"

enum PacketKind { SEGMENTS = 1, PIXELS = 2 };

struct Axis {
  i32 source, target, start, len;
  i32 step_and_phase; // phase in the low 8 bits
  i32 is_mirrored;
  i32 shift;  // fractional bits of the weights
  i32 most;   // weights of an output pixel
  i32 filter; // enum Filter
  i32 needed; // the first source sample that is there
};

struct Component {
  i32 h, v;   // blocks per MCU
  i32 dc, ac; // numbers of Huffman tables
  i32 block;  // side of a block in samples: 8, 4, 2 or 1
  i32 across, down;
  i32 upsample; // enum Upsample
  i32 width, height;
  i32 first_column, end_column, first_row, end_row; // blocks that are needed
  i32 blocks, samples;                              // those of the components before
};

struct Packet {
  i32 kind, nbytes;
  i32 blocks, samples, rgb, taps, lines, picture; // memory that kernels use: blocks of 64, bytes, words (taps)
  i32 segments;
  i32 planes;
  i32 x, y, width, height; // the region that is decoded
  Axis axes[2];
  i32 passes; // enum Passes
  i32 fraction;
  i32 orientation; // 1: columns mirrored, 2: rows mirrored, 4: transposed, after that
  i32 flip;        // 1: columns, 2: rows, after everything else
  i32 visible[2], margin[2];
  i32 color; // 0: gray, 1: YCbCr, 2: RGB
  i32 components;
  i32 restart_interval;
  i32 mcus_x, mcus_y, blocks_per_mcu;
  i32 record_segments; // of a record of coefficients, which has no other segments
  i32 unused;
  i32 first_column, end_column, first_row, end_row; // MCUs that are needed
  i32 mcus_per_segment, segments_per_row, first_segment;
  i32 segments_at, quant_at, huffman_at, data_at, data_nbytes;
  i32 unused_too[2];
  Component component[3];
};

static_assert(sizeof(Packet) == 4 * 112, "a packet begins with 112 words");

struct Segment {
  u32 bits;
  i16 predictors[3];
  u16 ends_scan;
};

static_assert(sizeof(Segment) == 12, "an entry of a segment has 12 bytes");

// A segment of a record of coefficients.
struct RecordSegment {
  u32 at;                  // in the data; the bytes of DC coefficients are first
  u16 ac_nbytes, dc_nbytes; // no bytes of AC coefficients: these are zeros
  u16 component, count;    // `count`: of blocks
  u16 row, column;         // of its first block
};

static_assert(sizeof(RecordSegment) == 16, "an entry of a segment of a record has 16 bytes");

// Eight coefficients of a block, which are read or written at once.
struct alignas(16) Eight {
  i16 values[8];
};

CONSTANT u8 NATURAL[64] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
    41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
    30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
};

enum Dtype { UINT8, FLOAT32, FLOAT16, BFLOAT16 };

enum { BLOCK = 128 }; // threads of a block

// A batch of packets, memory for each step, and the tensor to write.
struct Batch {
  const u8 *packets;
  const i64 *bases;  // for each image: the places of its packet, and of its part of the memory of each step
  const i32 *starts; // for each image, and behind the last one: the first of its blocks of threads in this grid
  i16 *coefficients;
  u8 *samples;
  u8 *rgb;
  i32 *taps;
  i16 *lines;
  u8 *windows; // (n, channels, height, width), where the batch is augmented
  i32 *status; // for each image: 0, or not if its bytes are damaged
  void *out;
  i64 strides[4]; // of `out`, in elements: image, channel, row, column
  i32 images, channels, width, height;
  i32 is_reversed; // channels are blue, green, red
  i32 dtype;
  float scale[4], offset[4];
  u8 background[4];
};

enum Base { PACKET, BLOCKS, SAMPLES, RGB, TAPS, LINES, BASES };

// What a block of threads works on: a part of one image. All counts of an image are below 2^31.
struct Place {
  i32 image, block;

  DEVICE_METHOD i32 thread_number() const { return block * BLOCK + (i32)threadIdx.x; }

  DEVICE_METHOD i64 base(const Batch &batch, Base base) const { return batch.bases[image * BASES + base]; }

  DEVICE_METHOD const Packet &packet(const Batch &batch) const {
    return *(const Packet *)(batch.packets + base(batch, PACKET));
  }
};

// The last image that begins at this block or before it: those without blocks begin where the next one does.
DEVICE Place find_place(const Batch &batch) {
  i32 low = 0, high = batch.images - 1, block = (i32)blockIdx.x;
  while (low < high) {
    i32 middle = (low + high + 1) / 2;
    if (batch.starts[middle] <= block)
      low = middle;
    else
      high = middle - 1;
  }
  return {low, block - batch.starts[low]};
}

// The width in memory of rows of pixels and of lines: threads read and write four values at once.
DEVICE i32 padded(i32 width) { return (width + 3) & ~3; }
