// Mapping: a range of memory from mmap, unmapped when it goes. Movable, not for concurrent use
// (what lies in it may be).
#pragma once

#include <cstddef>

#include "runtime/base/status.h"

namespace dlaunch {

class Mapping {
 public:
  Mapping() = default;
  ~Mapping();
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;

  /// Zero-filled memory of this process alone. Pages cost nothing until they are touched.
  static Result<Mapping> anonymous(std::size_t bytes);
  /// The first `bytes` bytes of a file, shared with whoever maps it too. The descriptor may be
  /// closed afterwards.
  static Result<Mapping> of_file(int descriptor, std::size_t bytes);

  std::byte* data() const { return data_; }
  std::size_t size() const { return bytes_; }

 private:
  static Result<Mapping> map(int descriptor, int flags, std::size_t bytes);

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace dlaunch
