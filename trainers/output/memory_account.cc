#include "trainers/output/memory_account.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace dlaunch {

void MemoryAccount::begin_step() {
  peak_ = peak();
  backend_.reset_peak();
}

void MemoryAccount::end_step(const nn::FlatParameters& parameters, std::size_t optimizer_bytes) {
  const nn::MemoryStats memory = backend_.memory();
  use_.parameters = static_cast<std::size_t>(parameters.values.size()) * sizeof(float);
  use_.gradients = static_cast<std::size_t>(parameters.gradients.size()) * sizeof(float);
  use_.optimizer = optimizer_bytes;
  const std::size_t named = parameters.backend_bytes + optimizer_bytes;
  use_.buffers = std::max(use_.buffers, memory.in_use - std::min(memory.in_use, named));
  use_.activations = std::max(use_.activations, memory.peak - memory.in_use);
}

MemoryUse MemoryAccount::use() const {
  MemoryUse use = use_;
  use.resident = peak_resident_bytes();
  return use;
}

std::size_t MemoryAccount::peak() const {
  return std::max(peak_, backend_.memory().peak);
}

std::size_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != "VmHWM:") continue;
    std::size_t kibibytes = 0;
    status >> kibibytes;
    return kibibytes * 1024;
  }
  return 0;
}

}  // namespace dlaunch
