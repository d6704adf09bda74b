// The __shared__ variables of the kernels that this program contains.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace dlaunch::cuda_on_host {

class SharedMemory {
 public:
  /// Finds them. Throws std::runtime_error if this program's file cannot be read, or has no
  /// symbols.
  SharedMemory();

  /// As a block finds them: with what is a NaN in every floating type.
  void make_uninitialised() const;
  std::size_t variables() const { return variables_.size(); }

 private:
  std::vector<std::span<std::byte>> variables_;
};

}  // namespace dlaunch::cuda_on_host
