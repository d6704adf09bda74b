// MemoryAccount: what a rank's memory is used for, by the account of the backend's allocator.
// One thread.
#pragma once

#include <cstddef>

#include "nn/core/backend.h"
#include "nn/core/flat_parameters.h"

namespace dlaunch {

/// Bytes, each at its peak.
struct MemoryUse {
  std::size_t parameters = 0;
  std::size_t gradients = 0;
  std::size_t optimizer = 0;    // its state
  std::size_t activations = 0;  // what a step needs besides and gives back
  std::size_t buffers = 0;   // what stays: statistics, averages, weights in the layout of kernels
  std::size_t resident = 0;  // of the whole process, with the program itself and the data
};

class MemoryAccount {
 public:
  /// The backend must outlive it.
  explicit MemoryAccount(nn::Backend& backend) : backend_(backend) {}

  void begin_step();
  /// When the step's activations are gone.
  void end_step(const nn::FlatParameters& parameters, std::size_t optimizer_bytes);

  /// `resident` is filled in by this.
  MemoryUse use() const;
  /// Most bytes of tensors that the backend has had at any time.
  std::size_t peak() const;

 private:
  nn::Backend& backend_;
  MemoryUse use_;
  std::size_t peak_ = 0;  // up to the last step's begin
};

/// Most memory this process has had resident, in bytes; 0 if the system does not say.
std::size_t peak_resident_bytes();

}  // namespace dlaunch
