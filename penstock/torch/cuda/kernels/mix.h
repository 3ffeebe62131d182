// Augmentation of the tensor after `finish`: erasing, MixUp and CutMix. Specification: penstock/transforms/ops/erase.py, batch.py,
// native/core/src/pixels/mix.rs.

#pragma once

#include "augment.h"

DEVICE float float_of(u32 bits) {
  union {
    u32 bits;
    float value;
  } both;
  both.bits = bits;
  return both.value;
}

DEVICE float float_of_float16(u16 bits) {
  u32 sign = (u32)(bits & 0x8000) << 16, size = bits & 0x7fff;
  if (size >= 0x7c00)
    return float_of(sign | 0x7f800000 | (size & 0x3ff) << 13);
  if (size < 0x400) { // subnormal: a multiple of 2^-24
    float value = (float)size * (1.0f / 16777216.0f);
    return sign ? -value : value;
  }
  return float_of(sign | ((size << 13) + 0x38000000));
}

// Rounds to the dtype of the tensor.
DEVICE float as_dtype(float value, i32 dtype) {
  if (dtype == FLOAT16)
    return float_of_float16(float16_bits(value));
  return dtype == BFLOAT16 ? float_of((u32)bfloat16_bits(value) << 16) : value;
}

DEVICE float value_at(const Augment &augment, i64 place) {
  if (augment.dtype == FLOAT32)
    return ((const float *)augment.out)[place];
  u16 bits = ((const u16 *)augment.out)[place];
  return augment.dtype == FLOAT16 ? float_of_float16(bits) : float_of((u32)bits << 16);
}

DEVICE void set_value(const Augment &augment, i64 place, float value) {
  if (augment.dtype == FLOAT32)
    ((float *)augment.out)[place] = value;
  else
    ((u16 *)augment.out)[place] = augment.dtype == FLOAT16 ? float16_bits(value) : bfloat16_bits(value);
}

// Where a value of the first image lies in the tensor, by its number in the order of the memory; and its x and y.
struct ValuePlace {
  i64 offset;
  i32 channel, x, y;

  DEVICE_METHOD ValuePlace(const Augment &augment, i32 number) {
    bool is_channel_last = augment.strides[1] < augment.strides[3];
    i32 pixel = is_channel_last ? number / 3 : number % pixels_of(augment);
    channel = is_channel_last ? number % 3 : number / pixels_of(augment);
    x = pixel % augment.width;
    y = pixel / augment.width;
    offset = channel * augment.strides[1] + y * augment.strides[2] + x * augment.strides[3];
  }
};

// Overwrites the rectangle of each row's image in the tensor of floats.
KERNEL(erase, Augment, augment) {
  i32 number = thread_number();
  const Step &step = *steps_of(augment);
  if (number >= 3 * pixels_of(augment))
    return;
  ValuePlace place(augment, number);
  if (is_inside(step, place.x, place.y))
    set_value(augment, step.image * augment.strides[0] + place.offset, (float)step.numbers[place.channel]);
}

// MixUp of the tensor of floats with the image before, in place: a thread for each value of an image. Products and the
// sum are rounded to the tensor's dtype.
KERNEL(mix_up, Augment, augment) {
  i32 number = thread_number();
  if (number >= 3 * pixels_of(augment) || augment.images == 0)
    return;
  const Step &step = *steps_of(augment);
  float own_weight = (float)step.numbers[0], before_weight = (float)step.numbers[1];
  i64 place = ValuePlace(augment, number).offset;
  float before = value_at(augment, (augment.images - 1) * augment.strides[0] + place);
  for (i32 image = 0; image < augment.images; image++) {
    i64 at = image * augment.strides[0] + place;
    float own = value_at(augment, at);
    float first = as_dtype(before * before_weight, augment.dtype), second = as_dtype(own * own_weight, augment.dtype);
    set_value(augment, at, first + second);
    before = own;
  }
}

template <typename T> DEVICE void move_to_next_image(const Augment &augment, i64 place) {
  T *values = (T *)augment.out + place;
  T before = values[(augment.images - 1) * augment.strides[0]];
  for (i32 image = 0; image < augment.images; image++) {
    T own = values[image * augment.strides[0]];
    values[image * augment.strides[0]] = before;
    before = own;
  }
}

// CutMix of the tensor, of any dtype, in place: in the rectangle, each image gets the values of the one before.
KERNEL(cut_mix, Augment, augment) {
  i32 number = thread_number();
  if (number >= 3 * pixels_of(augment) || augment.images == 0)
    return;
  ValuePlace place(augment, number);
  if (!is_inside(*steps_of(augment), place.x, place.y))
    return;
  if (augment.dtype == UINT8)
    move_to_next_image<u8>(augment, place.offset);
  else if (augment.dtype == FLOAT32)
    move_to_next_image<float>(augment, place.offset);
  else
    move_to_next_image<u16>(augment, place.offset);
}
