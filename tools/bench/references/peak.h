// How fast a core multiplies and adds at best: many independent chains of the widest instructions
// that it has, with everything in registers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dlaunch::bench {

struct PeakKernel {
  std::string type;          // fp32, bf16
  std::string instructions;  // what it is made of
  double flop_per_round = 0;
  void (*run)(std::uint64_t rounds) = nullptr;
};

/// Those that this CPU can run. (There is none for AMX, whose bf16 is several times faster.)
std::vector<PeakKernel> peak_kernels();

}  // namespace dlaunch::bench
