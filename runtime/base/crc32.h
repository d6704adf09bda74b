// Cyclic redundancy checks of 32 bits, lowest bit first. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace dlaunch {

inline constexpr std::uint32_t kCrc32 = 0xEDB88320U;   // of Ethernet, gzip and PNG
inline constexpr std::uint32_t kCrc32c = 0x82F63B78U;  // Castagnoli's, of iSCSI and TensorBoard

template <std::uint32_t kPolynomial>
constexpr std::array<std::uint32_t, 256> make_crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? kPolynomial : 0U);
    table[byte] = crc;
  }
  return table;
}

template <std::uint32_t kPolynomial>
std::uint32_t crc_of(std::span<const std::byte> bytes) {
  static constexpr std::array<std::uint32_t, 256> kTable = make_crc_table<kPolynomial>();
  std::uint32_t crc = ~0U;
  for (const std::byte byte : bytes)
    crc = (crc >> 8U) ^ kTable[(crc ^ static_cast<std::uint32_t>(byte)) & 0xFFU];
  return ~crc;
}

}  // namespace dlaunch
