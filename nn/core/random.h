// Generator: counter-based random numbers, Philox4x32-10 of Salmon, Moraes, Dror and Shaw,
// "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
//
// A number is a pure function of (seed, stream, position), so that any thread or device computes
// the same numbers without sharing state, and a saved state is three integers. The same numbers
// come out on every machine and device; normal() may differ in the last bit with the maths library.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace dlaunch::nn {

inline constexpr int kPhiloxRounds = 10;
inline constexpr std::uint32_t kPhiloxMultiplier0 = 0xD2511F53U;
inline constexpr std::uint32_t kPhiloxMultiplier1 = 0xCD9E8D57U;
inline constexpr std::uint32_t kPhiloxWeyl0 = 0x9E3779B9U;  // added to the key after each round
inline constexpr std::uint32_t kPhiloxWeyl1 = 0xBB67AE85U;

/// The Philox4x32-10 bijection: four random words for a 128-bit counter under a 64-bit key. Usable
/// from device code, being constexpr.
constexpr std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                                  std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const std::uint64_t product0 = std::uint64_t{kPhiloxMultiplier0} * counter[0];
    const std::uint64_t product1 = std::uint64_t{kPhiloxMultiplier1} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<std::uint32_t>(product0)};
    key[0] += kPhiloxWeyl0;
    key[1] += kPhiloxWeyl1;
  }
  return counter;
}

/// Words 4 index ... 4 index + 3 of a random sequence.
constexpr std::array<std::uint32_t, 4> philox_block(std::uint64_t seed, std::uint64_t stream,
                                                    std::uint64_t index) {
  return philox4x32({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
                     static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)},
                    {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
}

/// A position in a random sequence, and the whole state of a Generator. Word number p of the
/// sequence is word p % 4 of philox4x32 with counter = (p / 4, stream) and key = seed, low words
/// first.
struct RandomState {
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;
  std::uint64_t position = 0;  // in 32-bit words

  friend bool operator==(const RandomState&, const RandomState&) = default;
};

/// Uniform in [0, bound) without bias (Lemire 2019), from the 32 random bits that each call of
/// `next` gives; bound > 0.
template <typename Next>
constexpr std::uint32_t random_below(std::uint32_t bound, Next&& next) {
  std::uint64_t product = std::uint64_t{next()} * bound;
  if (static_cast<std::uint32_t>(product) < bound) {
    const std::uint32_t threshold = (0U - bound) % bound;
    while (static_cast<std::uint32_t>(product) < threshold) product = std::uint64_t{next()} * bound;
  }
  return static_cast<std::uint32_t>(product >> 32);
}

/// Not safe for use by several threads at once; copies continue independently from the same point.
class Generator {
 public:
  using result_type = std::uint32_t;  // usable as a UniformRandomBitGenerator

  explicit Generator(std::uint64_t seed, std::uint64_t stream = 0) : state_{seed, stream, 0} {}
  explicit Generator(const RandomState& state) : state_(state) {}

  const RandomState& state() const { return state_; }
  void restore(const RandomState& state) { *this = Generator(state); }

  /// The next 32 random bits.
  std::uint32_t operator()();
  static constexpr std::uint32_t min() { return 0; }
  static constexpr std::uint32_t max() { return 0xffffffffU; }

  /// Hands `words` consecutive words, beginning at a multiple of four, to somebody who computes
  /// them by himself (a dropout kernel), and goes on behind them.
  RandomState reserve(std::uint64_t words);

  /// Uniform in [low, high); 24 random bits.
  float uniform(float low = 0.0F, float high = 1.0F);
  /// Uniform in [0, bound) without bias; Error if bound is 0.
  std::uint32_t below(std::uint32_t bound);
  /// Gaussian, by Box and Muller's transform.
  float normal(float mean = 0.0F, float deviation = 1.0F);

  void fill_uniform(std::span<float> values, float low, float high);
  void fill_normal(std::span<float> values, float mean, float deviation);
  /// 0 ... count-1 in random order (Fisher and Yates). Error if count does not fit 32 bits.
  std::vector<std::uint32_t> permutation(std::size_t count);

 private:
  RandomState state_;
  std::array<std::uint32_t, 4> block_{};  // the words of position / 4
  std::uint64_t block_index_ = ~std::uint64_t{0};
};

}  // namespace dlaunch::nn
