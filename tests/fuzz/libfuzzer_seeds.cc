// Hands a target's seeds to libFuzzer: now and then its mutation of an input is a seed instead, so
// that no files are needed.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_target.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t most, unsigned seed) {
  static const std::vector<std::string> seeds = dlaunch::fuzz::seed_inputs();
  if (size > 1 && seed % 256 != 0) return LLVMFuzzerMutate(data, size, most);
  const std::string& chosen = seeds[seed / 256 % seeds.size()];
  const std::size_t count = std::min(chosen.size(), most);
  std::memcpy(data, chosen.data(), count);
  return count;
}
