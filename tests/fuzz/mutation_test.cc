// Runs a fuzz target as an ordinary test: on its seeds and its kept corpus, and on random mutations
// of them for a bounded time. If the target aborts, the seed of the mutations is the last thing
// printed; DLAUNCH_TEST_SEED repeats them.
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>

#include <gtest/gtest.h>

#include "runtime/base/deadline.h"
#include "tests/fuzz/fuzz_target.h"

namespace dlaunch::fuzz {
namespace {

constexpr std::size_t kMostBytes = 4096;
constexpr int kMostRuns = 200'000;
constexpr std::chrono::milliseconds kTime{1500};

void run(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
}

std::uint64_t choose_seed() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): read only
  if (const char* fixed = std::getenv("DLAUNCH_TEST_SEED")) return std::strtoull(fixed, nullptr, 0);
  std::random_device source;
  return std::uint64_t{source()} << 32 | source();
}

// Numbers at which lengths and counts go wrong.
std::uint64_t interesting_number(std::mt19937_64& random) {
  const std::uint64_t power = std::uint64_t{1} << random() % 64;
  const std::uint64_t near[] = {power - 1, power, power + 1, 0, ~std::uint64_t{0}, random() % 256};
  return near[random() % std::size(near)];
}

class Mutator {
 public:
  Mutator(std::uint64_t seed, const std::vector<std::string>& seeds)
      : random_(seed), seeds_(seeds) {}

  std::string next() {
    std::string input = pick_seed();
    for (std::uint64_t turns = 1 + random_() % 8; turns > 0; --turns) mutate(input);
    if (input.size() > kMostBytes) input.resize(kMostBytes);
    return input;
  }

 private:
  const std::string& pick_seed() { return seeds_[random_() % seeds_.size()]; }

  void mutate(std::string& input) {
    const std::size_t at = random_() % (input.size() + 1);
    const std::size_t count = random_() % (std::min<std::size_t>(input.size() - at, 64) + 1);
    switch (random_() % 6) {
      case 0:
        if (at < input.size()) input[at] = static_cast<char>(input[at] ^ (1 << random_() % 8));
        break;
      case 1:
        if (at < input.size()) input[at] = static_cast<char>(random_());
        break;
      case 2:
        input.erase(at, count);
        break;
      case 3:
        input.insert(at, input.substr(at, count));
        break;
      case 4: {
        const std::uint64_t number = interesting_number(random_);
        const std::size_t width = std::min(std::size_t{1} << random_() % 4, input.size() - at);
        std::memcpy(input.data() + at, &number, width);
        break;
      }
      default: {  // continue as another seed does
        const std::string& other = pick_seed();
        input = input.substr(0, at) + other.substr(random_() % (other.size() + 1));
      }
    }
  }

  std::mt19937_64 random_;
  const std::vector<std::string>& seeds_;
};

// The target's own, and what a fuzzer has found to reach far.
std::vector<std::string> all_seeds() {
  std::vector<std::string> seeds = seed_inputs();
  const std::filesystem::path corpus(DLAUNCH_FUZZ_CORPUS);
  if (!std::filesystem::exists(corpus)) return seeds;
  std::vector<std::filesystem::path> files{std::filesystem::directory_iterator(corpus), {}};
  std::ranges::sort(files);  // DLAUNCH_TEST_SEED counts on an order
  for (const auto& path : files) {
    std::ifstream file(path, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return seeds;
}

TEST(FuzzTarget, KeepsItsPromisesOnItsSeeds) {
  const std::vector<std::string> seeds = all_seeds();
  ASSERT_FALSE(seeds.empty());
  run("");
  for (const std::string& seed : seeds) run(seed);
}

TEST(FuzzTarget, KeepsItsPromisesOnMutationsOfItsSeeds) {
  const std::uint64_t seed = choose_seed();
  std::cout << "DLAUNCH_TEST_SEED=" << seed << std::endl;
  const std::vector<std::string> seeds = all_seeds();
  Mutator mutator(seed, seeds);
  const Deadline deadline = Deadline::after(kTime);
  int runs = 0;
  while (runs < kMostRuns && !deadline.expired()) {
    run(mutator.next());
    ++runs;
  }
  std::cout << runs << " inputs" << std::endl;
}

}  // namespace
}  // namespace dlaunch::fuzz
