// Which random numbers are used for what: every purpose draws from a stream of its own (the stream
// of nn::Generator), so that none repeats another's numbers and each is a function of its place
// alone - of the sample, not of the rank that happens to handle it.
#pragma once

#include <cstdint>

namespace dlaunch::nn {

enum class RandomPurpose : std::uint8_t {
  kModel = 1,         // initial weights and dropout masks; minor: rank
  kPermutation,       // major: epoch
  kAugmentation,      // major: epoch, minor: sample
  kSyntheticPattern,  // minor: class
  kSyntheticSample,   // major: split, minor: sample
  kMix,               // major: epoch, minor: micro-batch of the epoch
  kFlip,              // minor: sample
  kBatchCrop,         // major: epoch, minor: step of the epoch
};

/// 24 bits of `major` and 32 of `minor` tell places apart.
constexpr std::uint64_t random_stream(RandomPurpose purpose, std::uint64_t major = 0,
                                      std::uint64_t minor = 0) {
  return static_cast<std::uint64_t>(purpose) << 56 | (major & 0xffffff) << 32 |
         (minor & 0xffffffff);
}

}  // namespace dlaunch::nn
