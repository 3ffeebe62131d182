// Entropy decoding: each thread decodes one segment, from its seek point to its end.
//
// Every loop ends: a segment has a fixed number of MCUs, a block at most 64 symbols. Bytes are read only inside the data
// of the packet, and coefficients are written only to blocks that are needed. What is invalid sets the image's status.

#pragma once

#include "packet.h"

enum { LOOKUP_BITS = 10, TABLES = 3, MOST_BLOCKS = 10 };
enum { SYMBOLS = 4 }; // that a thread decodes before it looks for the end of its block, at most

// A Huffman code. The file declares the number of codes of each length, 1 to 16, and then the symbols.
struct Code {
  const u8 *symbols;  // null where there is no code
  u32 limits[16];     // 16 bits that begin with a code of this length are below it
  i32 distances[16];  // from a code of this length, as a number, to the place of its symbol

  DEVICE_METHOD void declare(const Packet &packet, i32 number) {
    const u8 *start = (const u8 *)&packet;
    const u32 *entry = (const u32 *)(start + packet.huffman_at) + 2 * number;
    symbols = entry[1] < 16 ? nullptr : start + entry[0] + 16;
    if (!symbols)
      return;
    u32 code = 0, symbol = 0;
    for (i32 length = 1; length <= 16; length++) {
      u32 count = symbols[length - 17];
      distances[length - 1] = (i32)(symbol - code);
      code += count, symbol += count;
      limits[length - 1] = code << (16 - length);
      code <<= 1;
    }
  }

  // The length (in the high byte) and the symbol of the code that these 16 bits begin with; 0 if there is none.
  DEVICE_METHOD u16 find(u32 bits, i32 shortest, i32 longest) const {
    for (i32 length = shortest; length <= longest; length++)
      if (bits < limits[length - 1])
        return (u16)(length << 8 | symbols[(i32)(bits >> (16 - length)) + distances[length - 1]]);
    return 0;
  }
};

// What a block of threads shares. Threads read it with different indices, which constant memory serves one after another.
struct Tables {
  Place place;
  Packet packet;
  Code codes[2 * TABLES];                  // of DC, then of AC
  u16 found[2 * TABLES][1 << LOOKUP_BITS]; // what `find` returns for codes of up to so many bits
  u8 natural[64];
  u8 components[MOST_BLOCKS], x[MOST_BLOCKS], y[MOST_BLOCKS]; // of the blocks of an MCU: component, place in the MCU
  i32 blocks;
  u32 lengths[BLOCK]; // of the segments, in bits
  u8 order[BLOCK];    // the segments, the longest one first
};

// The entry of a segment; the next one is of its end.
DEVICE const Segment *segment_at(const u8 *start, const Packet &packet, i32 number) {
  const Segment *entries = (const Segment *)(start + packet.segments_at);
  return entries + number + number / packet.segments_per_row; // a row has one entry more
}

DEVICE void prepare(const Batch &batch, Tables &shared) {
  Place place = find_place(batch);
  const Packet &packet = place.packet(batch);
  for (i32 i = threadIdx.x; i < (i32)(sizeof(Packet) / 4); i += BLOCK)
    ((i32 *)&shared.packet)[i] = ((const i32 *)&packet)[i];
  if (threadIdx.x < 64)
    shared.natural[threadIdx.x] = NATURAL[threadIdx.x];
  if (threadIdx.x < 2 * TABLES)
    shared.codes[threadIdx.x].declare(packet, threadIdx.x);
  i32 number = place.thread_number();
  const Segment *entry = segment_at((const u8 *)&packet, packet, least(number, packet.segments - 1));
  shared.lengths[threadIdx.x] = number < packet.segments ? entry[1].bits - entry[0].bits : 0;
  if (threadIdx.x != BLOCK - 1)
    return;
  shared.place = place;
  shared.blocks = 0;
  for (i32 c = 0; c < packet.components; c++)
    for (i32 b = 0; b < packet.component[c].h * packet.component[c].v && shared.blocks < MOST_BLOCKS; b++) {
      shared.components[shared.blocks] = (u8)c;
      shared.x[shared.blocks] = (u8)(b % packet.component[c].h);
      shared.y[shared.blocks++] = (u8)(b / packet.component[c].h);
    }
}

DEVICE void fill_tables(const Batch &, Tables &shared) {
  u32 own = shared.lengths[threadIdx.x];
  i32 rank = 0;
  for (i32 i = 0; i < BLOCK; i++)
    rank += shared.lengths[i] > own || (shared.lengths[i] == own && i < (i32)threadIdx.x);
  shared.order[rank] = (u8)threadIdx.x;
  for (i32 number = 0; number < 2 * TABLES; number++)
    if (shared.codes[number].symbols)
      for (u32 i = threadIdx.x; i < 1 << LOOKUP_BITS; i += BLOCK)
        shared.found[number][i] = shared.codes[number].find(i << (16 - LOOKUP_BITS), 1, LOOKUP_BITS);
}

// A position in entropy-coded bytes.
struct Bits {
  const u8 *data;
  u32 at, end;       // the next byte, and the end of the bytes
  u32 first, second; // the aligned words from the next byte on: the second is loaded long before it is needed
  u64 buffer;        // loaded bits, the next one highest
  i32 count;         // their number, with `padding`
  i32 padding;       // zeros after the last byte before a marker, or the end

  DEVICE_METHOD void begin(u32 bit) {
    at = least(bit / 8, end);
    first = word(at / 4);
    second = word(at / 4 + 1);
    buffer = 0;
    count = padding = 0;
    refill();
    drop(bit % 8);
  }

  // The data begin at a multiple of four bytes, and packets end at one.
  DEVICE_METHOD u32 word(u32 number) const { return 4 * number < end ? ((const u32 *)data)[number] : 0; }

  // Bits of bytes that are not consumed; negative if more were consumed than there are.
  DEVICE_METHOD i32 left() const { return count - padding; }

  // The next four bytes, the first one lowest.
  DEVICE_METHOD u32 next_bytes() const { return (u32)(((u64)second << 32 | first) >> 8 * (at % 4)); }

  DEVICE_METHOD void pass(u32 bytes) {
    bool is_next = at % 4 + bytes >= 4;
    at += bytes;
    if (is_next) {
      first = second;
      second = word(at / 4 + 1);
    }
  }

  // Loads bits, until there are more than 32.
  DEVICE_METHOD void refill() {
    while (count <= 32) {
      u32 bytes = next_bytes();
      if (at + 4 <= end && ((~bytes - 0x01010101) & bytes & 0x80808080) == 0) { // no byte is FF
        buffer |= (u64)swap_bytes(bytes) << (32 - count);
        count += 32;
        pass(4);
        return;
      }
      u64 byte = at < end ? bytes & 0xff : 0;
      if (at >= end || (byte == 0xff && (at + 1 >= end || (bytes & 0xff00) != 0))) {
        byte = 0;
        padding += 8;
      } else {
        pass(byte == 0xff ? 2 : 1);
      }
      buffer |= byte << (56 - count);
      count += 8;
    }
  }

  DEVICE_METHOD u32 peek(i32 bits) const { return (u32)(buffer >> 32 >> (32 - bits)); }

  DEVICE_METHOD void drop(i32 bits) {
    buffer <<= bits;
    count -= bits;
  }

  // The offset in bits of the next one, as seek points count: stuffing included.
  DEVICE_METHOD u32 position() const {
    u32 place = at;
    for (i32 whole = (left() + 7) / 8; whole > 0 && place > 0; whole--) {
      place--;
      if (place > 0 && data[place] == 0 && data[place - 1] == 0xff)
        place--;
    }
    return 8 * place + (8 - left() % 8) % 8;
  }

  // Moves behind the bytes FF that may fill the space before a marker. False if there is more data before it.
  DEVICE_METHOD bool find_marker() {
    if (left() < 0 || left() >= 8)
      return false;
    while (at + 1 < end && data[at] == 0xff && data[at + 1] == 0xff)
      at++;
    return true;
  }

  // Begins the restart interval whose marker has this number.
  DEVICE_METHOD bool restart(u32 number) {
    if (!find_marker() || at + 1 >= end || data[at] != 0xff || data[at + 1] != (0xd0 | (number & 7)))
      return false;
    begin(8 * (at + 2));
    return true;
  }
};

// The value of the next `size` bits, 0 to 11, as JPEG codes signed numbers.
DEVICE i32 take_value(Bits &bits, i32 size) {
  i32 value = (i32)bits.peek(size);
  bits.drop(size);
  return value < 1 << size >> 1 ? value + 1 - (1 << size) : value;
}

// The DC values of the components. They are chosen by comparisons, so that they stay in registers.
struct Predictors {
  i32 first, second, third;

  DEVICE_METHOD i32 of(i32 c) const { return c == 0 ? first : c == 1 ? second : third; }

  DEVICE_METHOD void set(i32 c, i32 value) {
    first = c == 0 ? value : first;
    second = c == 1 ? value : second;
    third = c == 2 ? value : third;
  }
};

// A block that is decoded.
struct Block {
  i32 c, dc, ac;     // its component, and the numbers of its codes
  i32 k, predictor;  // the next coefficient, 64 behind the last one, and the DC value
  i16 *coefficients; // where they are written; null if the block is not needed

  // Of an MCU the block of this number.
  DEVICE_METHOD Block(const Tables &shared, i32 number, i32 column, i32 row, const Predictors &predictors,
                      i16 *coefficients_of_image)
      : c(shared.components[number]), k(0), predictor(predictors.of(c)), coefficients(nullptr) {
    const Component &component = shared.packet.component[c];
    dc = component.dc;
    ac = TABLES + component.ac;
    i32 x = column * component.h + shared.x[number] - component.first_column;
    i32 y = row * component.v + shared.y[number] - component.first_row;
    i32 columns = component.end_column - component.first_column, rows = component.end_row - component.first_row;
    if ((u32)x >= (u32)columns || (u32)y >= (u32)rows)
      return;
    coefficients = coefficients_of_image + 64 * (i64)(component.blocks + y * columns + x);
    for (i32 i = 0; i < 8; i++)
      ((Eight *)coefficients)[i] = {}; // now, so that zeros and values are one write to the device's memory
  }

  // Decodes a symbol. False if it is invalid.
  DEVICE_METHOD bool decode_symbol(const Tables &shared, Bits &bits) {
    bool is_dc = k == 0;
    i32 table = is_dc ? dc : ac;
    bits.refill();
    u32 found = shared.found[table][bits.peek(LOOKUP_BITS)];
    if (found == 0)
      found = shared.codes[table].find(bits.peek(16), LOOKUP_BITS + 1, 16);
    i32 run = found >> 4 & 15, size = found & 15; // the symbols of DC have no run
    if (found == 0 || size > (is_dc ? 11 : 10))
      return false;
    bits.drop(found >> 8);
    i32 value = take_value(bits, size);
    if (is_dc) {
      predictor = value = (i32)((u32)predictor + (u32)value);
    } else if (size == 0 && run < 15) { // the other coefficients are zeros
      k = 64;
      return true;
    }
    k += run;
    if (k > 63)
      return false;
    if (coefficients)
      coefficients[shared.natural[k]] = (i16)value; // a run of 16 zeros ends with one
    k++;
    return true;
  }
};

// Rows of MCUs whose last segment is decoded to its end although only its beginning is needed, to compare it with the
// seek table: the decoder of the CPU reads one of these to its end.
enum { COMPARED_ROWS = 2 };

// Whether a segment that was decoded whole ends where the next one begins. `mcu`: the next one's first.
DEVICE bool ends_at(Bits &bits, const Packet &packet, const Segment &next, i32 mcu,
                    const Predictors &predictors) {
  if (next.ends_scan)
    return bits.find_marker() && 8 * bits.at == next.bits;
  if (packet.restart_interval > 0 && mcu % packet.restart_interval == 0)
    return bits.restart(mcu / packet.restart_interval - 1) && bits.position() == next.bits;
  for (i32 c = 0; c < packet.components; c++)
    if (predictors.of(c) != next.predictors[c])
      return false;
  return bits.left() >= 0 && bits.position() == next.bits;
}

// A warp waits for each of its threads, so that these decode segments of similar length, and any of them begins its next
// block when all have decoded a few symbols, not when all have come to the ends of their blocks.
DEVICE bool decode_segment(const u8 *start, const Tables &shared, i32 number, i16 *coefficients) {
  const Packet &packet = shared.packet;
  const Segment *entry = segment_at(start, packet, number);
  i32 row = packet.first_row + number / packet.segments_per_row;
  i32 column = packet.first_segment + number % packet.segments_per_row * packet.mcus_per_segment;
  i32 whole = least(column + packet.mcus_per_segment, packet.mcus_x), end = least(whole, packet.end_column);
  if (row < packet.first_row + COMPARED_ROWS)
    end = whole; // blocks that are not needed are passed over
  Bits bits = {start + packet.data_at, 0, (u32)packet.data_nbytes, 0, 0, 0, 0, 0};
  bits.begin(entry->bits);
  Predictors predictors = {entry->predictors[0], entry->predictors[1], entry->predictors[2]};
  i32 mcu = row * packet.mcus_x + column, next = 1; // the next block of the MCU
  Block block(shared, 0, column, row, predictors, coefficients);
  while (true) {
    for (i32 i = 0; i < SYMBOLS && block.k < 64; i++)
      if (!block.decode_symbol(shared, bits))
        return false;
    if (block.k < 64)
      continue;
    predictors.set(block.c, block.predictor);
    if (next == shared.blocks) {
      next = 0, column++, mcu++;
      if (bits.left() < 0)
        return false;
      if (column == end)
        break;
      if (packet.restart_interval > 0 && mcu % packet.restart_interval == 0) {
        if (!bits.restart(mcu / packet.restart_interval - 1))
          return false;
        predictors = {};
      }
    }
    block = Block(shared, next++, column, row, predictors, coefficients);
  }
  if (end == whole)
    return ends_at(bits, packet, entry[1], mcu, predictors);
  return bits.position() <= entry[1].bits;
}

DEVICE void decode_segments(const Batch &batch, Tables &shared) {
  const Place &place = shared.place;
  i32 number = place.block * BLOCK + shared.order[threadIdx.x];
  if (number >= shared.packet.segments)
    return;
  i16 *coefficients = batch.coefficients + 64 * place.base(batch, BLOCKS);
  if (!decode_segment((const u8 *)&place.packet(batch), shared, number, coefficients))
    batch.status[place.image] = 1;
}

KERNEL_OF(entropy, Batch, Tables, prepare, fill_tables, decode_segments)
