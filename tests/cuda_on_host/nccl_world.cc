#include "tests/cuda_on_host/nccl_world.h"

#include <chrono>

namespace dlaunch::cuda_on_host {

std::shared_ptr<NcclWorld> NcclWorld::of(std::uint64_t number, int size) {
  static std::mutex mutex;
  static std::map<std::uint64_t, std::weak_ptr<NcclWorld>> worlds;
  const std::scoped_lock lock(mutex);
  std::shared_ptr<NcclWorld> world = worlds[number].lock();
  if (world == nullptr) {
    world = std::make_shared<NcclWorld>(size);
    worlds[number] = world;
  }
  return world;
}

std::shared_ptr<NcclWorld> NcclWorld::part(int index) {
  const std::scoped_lock lock(mutex_);
  std::shared_ptr<NcclWorld>& part = parts_[index];
  if (part == nullptr) part = std::make_shared<NcclWorld>(size_);
  return part;
}

void NcclWorld::post(int from, int to, std::span<const std::byte> bytes) {
  {
    const std::scoped_lock lock(mutex_);
    messages_[{from, to}].emplace_back(bytes.begin(), bytes.end());
  }
  changed_.notify_all();
}

std::optional<std::vector<std::byte>> NcclWorld::take(int from, int to,
                                                      const std::atomic<bool>& given_up) {
  std::unique_lock lock(mutex_);
  auto& messages = messages_[{from, to}];
  while (messages.empty()) {
    if (given_up) return std::nullopt;
    changed_.wait_for(lock, std::chrono::milliseconds(1));
  }
  std::vector<std::byte> bytes = std::move(messages.front());
  messages.pop_front();
  return bytes;
}

}  // namespace dlaunch::cuda_on_host
