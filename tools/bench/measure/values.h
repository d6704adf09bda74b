// The numbers that benchmarks put into buffers: a formula of (rank, repetition, element), so that
// every repetition has fresh ones and any rank can compute what all others had.
//
// The formula only writes, which leaves the buffer in the cache of the rank that owns it and
// nothing else: the state in which a program that has just computed its gradients calls a
// collective.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace dlaunch::bench {

/// 32 well-mixed bits (multiply and shift; the constants are those of MurmurHash3's finalizer).
constexpr std::uint32_t mixed_bits(std::uint32_t stream, std::uint32_t element) {
  std::uint32_t x = element * 0x9e3779b9U + stream;
  x ^= x >> 16;
  x *= 0x85ebca6bU;
  x ^= x >> 13;
  x *= 0xc2b2ae35U;
  x ^= x >> 16;
  return x;
}

/// The stream of numbers of one rank in one repetition.
constexpr std::uint32_t stream_of(int rank, std::uint64_t repetition) {
  return mixed_bits(static_cast<std::uint32_t>(rank) + 1,
                    static_cast<std::uint32_t>(repetition) * 2 + 1);
}

/// In [0.5, 1.5), a multiple of 2^-23: exact in float, and sums of it are not.
constexpr float real_value(std::uint32_t stream, std::size_t element) {
  const std::uint32_t bits = mixed_bits(stream, static_cast<std::uint32_t>(element));
  return static_cast<float>(static_cast<std::int32_t>(bits >> 9)) * 0x1p-23F + 0.5F;
}

/// Fills with this rank's values of the repetition.
void fill_floats(float* data, std::size_t count, int rank, std::uint64_t repetition);

/// The greatest relative error of `sums` against the sum over these ranks' values, from
/// `first_element` on, in double.
double error_of_float_sums(const float* sums, std::size_t count, std::span<const int> ranks,
                           std::size_t first_element, std::uint64_t repetition);

}  // namespace dlaunch::bench
