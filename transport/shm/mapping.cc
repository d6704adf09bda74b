#include "transport/shm/mapping.h"

#include <sys/mman.h>

#include <cerrno>
#include <utility>

namespace dlaunch {

Mapping::~Mapping() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Result<Mapping> Mapping::map(int descriptor, int flags, std::size_t bytes) {
  void* const address =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, descriptor, 0);
  if (address == MAP_FAILED) return Status::from_errno("mmap", errno);
  Mapping mapping;
  mapping.data_ = static_cast<std::byte*>(address);
  mapping.bytes_ = bytes;
  return mapping;
}

Result<Mapping> Mapping::anonymous(std::size_t bytes) {
  return map(-1, MAP_PRIVATE | MAP_ANONYMOUS, bytes);
}

Result<Mapping> Mapping::of_file(int descriptor, std::size_t bytes) {
  Result<Mapping> mapping = map(descriptor, MAP_SHARED, bytes);
  // A core would hold all of it, and dumping makes memory of every page that nobody has used.
  if (mapping.ok()) ::madvise(mapping->data(), bytes, MADV_DONTDUMP);
  return mapping;
}

}  // namespace dlaunch
