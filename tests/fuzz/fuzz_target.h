// A fuzz target: one source file that feeds bytes from outside to one piece of code and aborts if
// that does something wrong. Each is built twice from the same source:
//
//   - as an ordinary test (mutation_test.cc), which runs its seeds, the corpus that is kept in
//     corpus/TARGET, and random mutations of both for a bounded time, with any compiler, as part of
//     ctest;
//   - as a libFuzzer program (libfuzzer_seeds.cc): tools/fuzz builds and runs them all.
//
// An input that a fuzzer found becomes one more seed, or a file of the corpus.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

/// libFuzzer's name and type: handles one input, returns 0.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace dlaunch::fuzz {

/// Inputs of the target that reach far: mutations start from them.
std::vector<std::string> seed_inputs();

/// The bytes of an input, taken from the front. Once they are used up, zeros come.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size)
      : rest_(reinterpret_cast<const char*>(data), size) {}

  std::uint8_t take_byte() { return static_cast<std::uint8_t>(take(1).append(1, '\0')[0]); }
  std::string take(std::size_t most) {
    const std::string taken(rest_.substr(0, most));
    rest_.remove_prefix(taken.size());
    return taken;
  }
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

/// Ends the program, naming the place, if the code under test broke a promise.
inline void require(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %s\n", promise);
  std::abort();
}

}  // namespace dlaunch::fuzz
