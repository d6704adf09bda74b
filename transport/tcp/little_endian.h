// Integers as little-endian bytes at an unaligned place.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <type_traits>

namespace dlaunch {

template <std::integral T>
T swap_unless_little(T value) {
  if constexpr (std::endian::native == std::endian::little) {
    return value;
  } else {
    std::make_unsigned_t<T> swapped = 0;
    auto rest = static_cast<std::make_unsigned_t<T>>(value);
    for (std::size_t byte = 0; byte < sizeof(T); ++byte) {
      swapped = static_cast<std::make_unsigned_t<T>>(swapped << 8 | (rest & 0xffU));
      rest = static_cast<std::make_unsigned_t<T>>(rest >> 8);
    }
    return static_cast<T>(swapped);
  }
}

/// Writes `value` at `to` and returns the place behind it.
template <std::integral T>
std::byte* store_little_endian(std::byte* to, T value) {
  value = swap_unless_little(value);
  std::memcpy(to, &value, sizeof(T));
  return to + sizeof(T);
}

/// Reads a value at `from` and moves `from` behind it.
template <std::integral T>
T load_little_endian(const std::byte*& from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  from += sizeof(T);
  return swap_unless_little(value);
}

}  // namespace dlaunch
