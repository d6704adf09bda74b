#include "transport/shm/shared_group.h"

#include <sys/uio.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "runtime/base/round_up.h"

namespace dlaunch {
namespace {

constexpr std::size_t kParities = 2;

// The memory: who sleeps, a bit each; until whose announcement; who has sent to whom | cells by
// channel, parity, member | slots likewise.
std::size_t awaited_at(std::size_t members) {
  return round_up((members + 7) / 8, sizeof(std::uint64_t));
}

std::size_t opened_at(std::size_t members) {
  return awaited_at(members) + members * sizeof(std::int32_t);
}

std::size_t waits_bytes(std::size_t members) {
  return round_up(opened_at(members) + members * members, kPage);
}

std::size_t cells_bytes(std::size_t members) {
  return round_up(members * kParities * SharedGroup::kChannels * sizeof(SharedCell), kPage);
}

std::size_t slots_bytes(std::size_t members, std::size_t channel) {
  return members * kParities * SharedGroup::kSlotBytes[channel];
}

}  // namespace

std::size_t SharedGroup::memory_bytes(int members) {
  const auto count = static_cast<std::size_t>(members);
  std::size_t bytes = waits_bytes(count) + cells_bytes(count);
  for (std::size_t channel = 0; channel < kChannels; ++channel)
    bytes += slots_bytes(count, channel);
  return bytes;
}

SharedGroup::SharedGroup(Options options) : options_(std::move(options)) {
  const std::size_t count = options_.members.size();
  cells_ = options_.memory + waits_bytes(count);
  std::byte* next = cells_ + cells_bytes(count);
  for (std::size_t channel = 0; channel < kChannels; ++channel) {
    slots_[channel] = next;
    next += slots_bytes(count, channel);
  }
}

SharedCell& SharedGroup::cell(Channel channel, std::uint64_t operation, int member) const {
  const std::size_t row = static_cast<std::size_t>(channel) * kParities + operation % kParities;
  const std::size_t index = row * options_.members.size() + static_cast<std::size_t>(member);
  return *reinterpret_cast<SharedCell*>(cells_ + index * sizeof(SharedCell));
}

std::byte* SharedGroup::slot(Channel channel, std::uint64_t operation, int member,
                             std::size_t unit) const {
  const auto which = static_cast<std::size_t>(channel);
  const std::size_t index = static_cast<std::size_t>(member) * kParities + operation % kParities;
  std::byte* slot = slots_[which] + index * kSlotBytes[which];
  if (unit == 0) return slot;
  return slot + operation / kParities % (kSlotBytes[which] / unit) * unit;
}

std::atomic<std::uint64_t>& SharedGroup::sleepers(int word) const {
  return reinterpret_cast<std::atomic<std::uint64_t>*>(options_.memory)[word];
}

std::atomic<std::int32_t>& SharedGroup::awaited(int member) const {
  std::byte* const first = options_.memory + awaited_at(options_.members.size());
  return reinterpret_cast<std::atomic<std::int32_t>*>(first)[member];
}

void SharedGroup::fall_asleep(int awaited_member) {
  // Whoever sees the bit sees this, too. If it still sees that this rank slept until something
  // else, it has announced before this rank looks once more.
  awaited(index()).store(awaited_member - Readiness::kAnyMember, std::memory_order_relaxed);
  sleepers(index() / 64).fetch_or(std::uint64_t{1} << (index() % 64), std::memory_order_seq_cst);
}

void SharedGroup::wake_up() {
  const std::uint64_t bit = std::uint64_t{1} << (index() % 64);
  sleepers(index() / 64).fetch_and(~bit, std::memory_order_relaxed);
}

std::atomic<std::uint8_t>& SharedGroup::opened(int from, int to) const {
  const std::size_t count = options_.members.size();
  const std::size_t index = static_cast<std::size_t>(to) * count + static_cast<std::size_t>(from);
  return reinterpret_cast<std::atomic<std::uint8_t>*>(options_.memory + opened_at(count))[index];
}

void SharedGroup::open_to(int member) {
  opened(index(), member).store(1, std::memory_order_seq_cst);
}

bool SharedGroup::is_opened_by(int member) const {
  return opened(member, index()).load(std::memory_order_seq_cst) != 0;
}

void SharedGroup::announce(SharedCell& own, std::uint64_t progress) {
  // Sequentially consistent: either the sleeper sees the progress before it sleeps, or this sees
  // that it is asleep.
  own.progress.exchange(progress, std::memory_order_seq_cst);
  for (int word = 0; word * 64 < size(); ++word) {
    std::uint64_t asleep = sleepers(word).load(std::memory_order_seq_cst);
    for (; asleep != 0; asleep &= asleep - 1) {
      const int member = word * 64 + std::countr_zero(asleep);
      const int until = awaited(member).load(std::memory_order_relaxed) + Readiness::kAnyMember;
      if (until == index() || until == Readiness::kAnyMember) wake(member);
    }
  }
}

void SharedGroup::wake(int member) {
  const std::uint64_t bit = std::uint64_t{1} << (member % 64);
  std::atomic<std::uint64_t>& word = sleepers(member / 64);
  if ((word.load(std::memory_order_seq_cst) & bit) == 0) return;
  // Whoever clears the bit rings; the others need not.
  if ((word.fetch_and(~bit, std::memory_order_seq_cst) & bit) != 0) {
    options_.doorbells->ring(member);
  }
}

std::optional<std::size_t> SharedGroup::heap_position(const void* data, std::size_t bytes) const {
  if (options_.heaps == nullptr) return std::nullopt;
  const auto own = heap(index());
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const auto begin = reinterpret_cast<std::uintptr_t>(own.data());
  if (address < begin || address - begin > own.size() || bytes > own.size() - (address - begin)) {
    return std::nullopt;
  }
  return address - begin;
}

std::span<std::byte> SharedGroup::heap(int member) const {
  return {options_.heaps + static_cast<std::size_t>(member) * options_.heap_bytes,
          options_.heap_bytes};
}

Status SharedGroup::read_member(int member, std::uint64_t address, std::byte* into,
                                std::size_t bytes) const {
  const Member& from = options_.members[static_cast<std::size_t>(member)];
  while (bytes > 0) {
    const iovec local{into, bytes};
    const iovec remote{reinterpret_cast<void*>(address), bytes};
    const ssize_t got = process_vm_readv(from.pid, &local, 1, &remote, 1, 0);
    if (got <= 0) {
      // Of a process that is being killed the memory goes first.
      const bool gone = errno == ESRCH || errno == EFAULT;
      const StatusCode code = gone ? StatusCode::kPeerLost : StatusCode::kIo;
      return Status::about_peer(code, from.rank,
                                Status::from_errno("reading its memory", errno).to_string());
    }
    into += got;
    address += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::size_t>(got);
  }
  return Status();
}

}  // namespace dlaunch
