// Entropy decoding: each thread decodes one segment, from its seek point to its end.
//
// Every loop ends: a segment has a fixed number of MCUs, a block at most 64 symbols. Bytes are read only inside the data
// of the packet, and coefficients are written only to blocks that are needed. What is invalid sets the image's status.

#pragma once

#include "packet.h"

enum { DC_BITS = 8, AC_BITS = 10, TABLES = 3 };

// Of a look-up: length of the code in the high byte, symbol in the low one; 0 if the code is longer, or invalid.
struct Tables {
  u16 dc[TABLES][1 << DC_BITS];
  u16 ac[TABLES][1 << AC_BITS];
};

CONSTANT u8 NATURAL[64] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
    41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
    30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
};

// A table as the file declares it: 16 counts, then the symbols.
struct Declared {
  const u8 *bytes;
  u32 nbytes;
};

DEVICE Declared declared(const Packet &packet, i32 is_ac, i32 number) {
  const u8 *start = (const u8 *)&packet;
  const u32 *entry = (const u32 *)(start + packet.huffman_at) + 2 * (TABLES * is_ac + number);
  return {start + entry[0], entry[1]};
}

// The code that `bits` (16, left-aligned) begin with, if it has at most `longest` bits; else 0.
DEVICE u16 find_code(const Declared &table, u32 bits, i32 longest) {
  if (table.nbytes < 16)
    return 0;
  u32 code = 0, symbol = 16;
  for (i32 length = 1; length <= longest; length++) {
    u32 count = table.bytes[length - 1], place = (bits >> (16 - length)) - code;
    if (place < count)
      return symbol + place < table.nbytes ? (u16)(length << 8 | table.bytes[symbol + place]) : 0;
    symbol += count;
    code = (code + count) << 1;
  }
  return 0;
}

DEVICE void fill_tables(const Batch &batch, Tables &tables) {
  const Packet &packet = packet_of(batch);
  if (packet.kind != SEGMENTS)
    return;
  for (i32 number = 0; number < TABLES; number++) {
    Declared dc = declared(packet, 0, number), ac = declared(packet, 1, number);
    for (u32 i = threadIdx.x; i < 1 << DC_BITS; i += blockDim.x)
      tables.dc[number][i] = find_code(dc, i << (16 - DC_BITS), DC_BITS);
    for (u32 i = threadIdx.x; i < 1 << AC_BITS; i += blockDim.x)
      tables.ac[number][i] = find_code(ac, i << (16 - AC_BITS), AC_BITS);
  }
}

// A position in entropy-coded bytes.
struct Bits {
  const u8 *data;
  u32 at, end;  // the next byte, and the end of the bytes
  u64 buffer;   // loaded bits, the next one highest
  i32 count;    // their number, with `padding`
  i32 padding;  // zeros after the last byte before a marker, or the end

  DEVICE_METHOD void begin(u32 bit) {
    at = least(bit / 8, end);
    buffer = 0;
    count = padding = 0;
    refill();
    drop(bit % 8);
  }

  // Bits of bytes that are not consumed; negative if more were consumed than there are.
  DEVICE_METHOD i32 left() const { return count - padding; }

  // The next four bytes, the first one lowest. The data begin at a multiple of four bytes, and packets end at one.
  DEVICE_METHOD u32 next_word() const {
    const u32 *words = (const u32 *)data + at / 4;
    u32 shift = 8 * (at % 4);
    return shift == 0 ? words[0] : words[0] >> shift | words[1] << (32 - shift);
  }

  // Loads bits, until there are more than 32.
  DEVICE_METHOD void refill() {
    while (count <= 32) {
      if (at + 4 <= end) {
        u32 word = next_word();
        if (((~word - 0x01010101) & word & 0x80808080) == 0) { // no byte is FF
          buffer |= (u64)swap_bytes(word) << (32 - count);
          count += 32;
          at += 4;
          return;
        }
      }
      u64 byte = 0;
      if (at < end && data[at] != 0xff) {
        byte = data[at++];
      } else if (at + 1 < end && data[at + 1] == 0) {
        byte = 0xff;
        at += 2;
      } else {
        padding += 8;
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

// The length and symbol of the next code; 0 if it is invalid.
DEVICE u32 look_up(const Bits &bits, const u16 *table, i32 width, const Packet &packet, i32 is_ac, i32 number) {
  u32 found = table[bits.peek(width)];
  return found != 0 ? found : find_code(declared(packet, is_ac, number), bits.peek(16), 16);
}

// The value of the next `size` bits, 1 to 11, as JPEG codes signed numbers.
DEVICE i32 take_value(Bits &bits, i32 size) {
  i32 value = (i32)bits.peek(size);
  bits.drop(size);
  return value < 1 << (size - 1) ? value + 1 - (1 << size) : value;
}

// Decodes a block into `block`, or passes over it if that is null. False if it is invalid.
DEVICE bool decode_block(Bits &bits, const Tables &tables, const Packet &packet, const Component &component,
                         i32 &predictor, i16 *block) {
  bits.refill();
  u32 found = look_up(bits, tables.dc[component.dc], DC_BITS, packet, 0, component.dc);
  i32 size = found & 0xff;
  if (found == 0 || size > 11)
    return false;
  bits.drop(found >> 8);
  if (size > 0)
    predictor = (i32)((u32)predictor + (u32)take_value(bits, size));
  if (block)
    block[0] = (i16)predictor;
  i32 k = 1;
  while (k < 64) {
    bits.refill();
    found = look_up(bits, tables.ac[component.ac], AC_BITS, packet, 1, component.ac);
    i32 run = found >> 4 & 15;
    size = found & 15;
    if (found == 0 || size > 10)
      return false;
    bits.drop(found >> 8);
    if (size == 0) {
      if (run < 15)
        return true;
      k += 16;
      continue;
    }
    k += run;
    i32 value = take_value(bits, size);
    if (k > 63)
      return false;
    if (block)
      block[NATURAL[k]] = (i16)value;
    k++;
  }
  return k == 64;
}

// Rows of MCUs whose last segment is decoded to its end although only its beginning is needed, to compare it with the
// seek table: the decoder of the CPU reads one of these to its end.
enum { COMPARED_ROWS = 2 };

// Decodes an MCU. False if it is invalid.
DEVICE bool decode_mcu(Bits &bits, const Tables &tables, const Packet &packet, i32 row, i32 column, i32 predictors[3],
                       i16 *coefficients) {
  for (i32 c = 0; c < packet.components; c++) {
    const Component &component = packet.component[c];
    for (i32 b = 0; b < component.h * component.v; b++) {
      i32 x = column * component.h + b % component.h, y = row * component.v + b / component.h;
      i16 *block = nullptr;
      if (x >= component.first_column && x < component.end_column && y >= component.first_row && y < component.end_row) {
        i64 place = (i64)(y - component.first_row) * (component.end_column - component.first_column);
        block = coefficients + 64 * (component.blocks + place + x - component.first_column);
      }
      if (!decode_block(bits, tables, packet, component, predictors[c], block))
        return false;
    }
  }
  return true;
}

// Whether a segment that was decoded whole ends where the next one begins. `mcu`: the next one's first.
DEVICE bool ends_at(Bits &bits, const Packet &packet, const Segment &next, i32 mcu, const i32 predictors[3]) {
  if (next.ends_scan)
    return bits.find_marker() && 8 * bits.at == next.bits;
  if (packet.restart_interval > 0 && mcu % packet.restart_interval == 0)
    return bits.restart(mcu / packet.restart_interval - 1) && bits.position() == next.bits;
  for (i32 c = 0; c < packet.components; c++)
    if (predictors[c] != next.predictors[c])
      return false;
  return bits.left() >= 0 && bits.position() == next.bits;
}

DEVICE bool decode_segment(const Packet &packet, const Tables &tables, i32 number, i16 *coefficients) {
  const u8 *start = (const u8 *)&packet;
  i32 row = number / packet.segments_per_row, place = number % packet.segments_per_row;
  const Segment *entry = (const Segment *)(start + packet.segments_at) + row * (packet.segments_per_row + 1) + place;
  row += packet.first_row;
  i32 first = packet.first_segment + place * packet.mcus_per_segment;
  i32 whole = least(first + packet.mcus_per_segment, packet.mcus_x), end = least(whole, packet.end_column);
  if (row < packet.first_row + COMPARED_ROWS)
    end = whole; // blocks that are not needed are passed over
  Bits bits = {start + packet.data_at, 0, (u32)packet.data_nbytes, 0, 0, 0};
  bits.begin(entry->bits);
  i32 predictors[3] = {entry->predictors[0], entry->predictors[1], entry->predictors[2]};
  i32 mcu = row * packet.mcus_x + first;
  for (i32 column = first; column < end; column++, mcu++) {
    if (column > first && packet.restart_interval > 0 && mcu % packet.restart_interval == 0) {
      if (!bits.restart(mcu / packet.restart_interval - 1))
        return false;
      predictors[0] = predictors[1] = predictors[2] = 0;
    }
    if (!decode_mcu(bits, tables, packet, row, column, predictors, coefficients) || bits.left() < 0)
      return false;
  }
  if (end == whole)
    return ends_at(bits, packet, entry[1], mcu, predictors);
  return bits.position() <= entry[1].bits;
}

DEVICE void decode_segments(const Batch &batch, Tables &tables) {
  const Packet &packet = packet_of(batch);
  i64 number = thread_number();
  if (packet.kind != SEGMENTS || number >= packet.segments)
    return;
  if (!decode_segment(packet, tables, (i32)number, batch.coefficients + 64 * base_of(batch, BLOCKS)))
    batch.status[blockIdx.y] = 1;
}

KERNEL_OF_TWO(entropy, Tables, fill_tables, decode_segments)
