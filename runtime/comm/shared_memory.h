// SharedMemory: memory of a communicator's own, from Communicator::allocate().
//
// Where ranks share a segment the memory lies in it, so that the ranks of the same host can read it
// and collectives on it need no copy; elsewhere it is plain memory. Owned by this object: movable,
// freed by its destructor, which any thread may run, also after the communicator is gone. The bytes
// themselves must not be touched any more once the communicator is destroyed.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

namespace dlaunch {

class SharedMemory {
 public:
  SharedMemory() = default;  // no bytes
  /// For implementers: `owner` frees the memory with its last copy.
  SharedMemory(std::span<std::byte> bytes, std::shared_ptr<void> owner)
      : bytes_(bytes), owner_(std::move(owner)) {}
  SharedMemory(SharedMemory&& other) noexcept { swap(other); }
  SharedMemory& operator=(SharedMemory&& other) noexcept {
    SharedMemory(std::move(other)).swap(*this);
    return *this;
  }
  ~SharedMemory() = default;

  /// As long as was asked for, aligned to a page.
  std::span<std::byte> bytes() const { return bytes_; }
  /// As many whole T as there is room for.
  template <typename T>
  std::span<T> as() const {
    return {reinterpret_cast<T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }

 private:
  void swap(SharedMemory& other) noexcept {
    std::swap(bytes_, other.bytes_);
    owner_.swap(other.owner_);
  }

  std::span<std::byte> bytes_;
  std::shared_ptr<void> owner_;
};

}  // namespace dlaunch
