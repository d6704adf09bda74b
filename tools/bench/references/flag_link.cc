#include "tools/bench/references/flag_link.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

namespace dlaunch::bench {
namespace {

[[noreturn]] void fail(const char* call) {
  throw std::system_error(errno, std::generic_category(), call);
}

void* map(int file, std::size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) fail("mmap");
  return memory;
}

void* create_for_peer(Communicator& world, std::size_t bytes) {
  const int file = memfd_create("dbench flag", MFD_CLOEXEC);
  if (file < 0) fail("memfd_create");
  if (ftruncate(file, static_cast<off_t>(bytes)) != 0) fail("ftruncate");
  void* memory = map(file, bytes);
  const std::array<std::int32_t, 2> where{getpid(), file};
  throw_if_error(world.send(where, 1));
  std::array<std::uint8_t, 1> opened{};
  throw_if_error(world.recv(opened, 1));
  close(file);
  return memory;
}

void* open_of_peer(Communicator& world, std::size_t bytes) {
  std::array<std::int32_t, 2> where{};
  throw_if_error(world.recv(where, 0));
  const std::string path = "/proc/" + std::to_string(where[0]) + "/fd/" + std::to_string(where[1]);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) fail(path.c_str());
  void* memory = map(file, bytes);
  close(file);
  const std::array<std::uint8_t, 1> mapped{};
  throw_if_error(world.send(mapped, 0));
  return memory;
}

}  // namespace

FlagLink::FlagLink(Communicator& world)
    : cells_(static_cast<Cell*>(world.rank() == 0 ? create_for_peer(world, 2 * sizeof(Cell))
                                                  : open_of_peer(world, 2 * sizeof(Cell)))),
      own_(world.rank()) {}

FlagLink::~FlagLink() {
  munmap(cells_, 2 * sizeof(Cell));
}

void FlagLink::send(const std::byte* data, std::size_t bytes) {
  Cell& cell = cells_[own_];
  std::memcpy(cell.payload, data, bytes);
  cell.number.store(++sent_, std::memory_order_release);
}

void FlagLink::receive(std::byte* data, std::size_t bytes) {
  Cell& cell = cells_[1 - own_];
  ++received_;
  while (cell.number.load(std::memory_order_acquire) != received_) {
  }
  std::memcpy(data, cell.payload, bytes);
}

}  // namespace dlaunch::bench
