// Packets (native/core/src/jpeg/packet.rs, native/core/src/fill/packet.rs), and what all kernels are given.

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
  i32 unused[2];
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

enum Dtype { UINT8, FLOAT32, FLOAT16, BFLOAT16 };

// A batch of packets, memory for each step, and the tensor to write.
struct Batch {
  const u8 *packets;
  const i64 *bases; // for each image: the places of its packet, and of its part of the memory of each step
  i16 *coefficients;
  u8 *samples;
  u8 *rgb;
  i32 *taps;
  i16 *lines;
  u8 *pictures;
  u8 *windows; // (n, channels, height, width)
  i32 *status; // for each image: 0, or not if its bytes are damaged
  void *out;
  i64 strides[4]; // of `out`, in elements: image, channel, row, column
  i32 images, channels, width, height;
  i32 is_reversed; // channels are blue, green, red
  i32 dtype;
  float scale[4], offset[4];
  u8 background[4];
};

enum Base { PACKET, BLOCKS, SAMPLES, RGB, TAPS, LINES, PICTURE, BASES };

DEVICE i64 base_of(const Batch &batch, Base base) { return batch.bases[(i64)blockIdx.y * BASES + base]; }

// The packet of this row of the grid.
DEVICE const Packet &packet_of(const Batch &batch) { return *(const Packet *)(batch.packets + base_of(batch, PACKET)); }
