#include "transport/event_set.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>

namespace dlaunch {
namespace {

epoll_event describe(std::uint32_t what, EventSet::Token token) {
  epoll_event event{};
  event.events = what;
  event.data.u64 = std::bit_cast<std::uint64_t>(token);
  return event;
}

}  // namespace

Result<EventSet> EventSet::make() {
  EventSet set;
  set.epoll_ = Descriptor(::epoll_create1(EPOLL_CLOEXEC));
  if (!set.epoll_.is_open()) return Status::from_errno("epoll_create1", errno);
  return set;
}

Status EventSet::add(int descriptor, std::uint32_t what, Token token) {
  epoll_event event = describe(what, token);
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) == 0) return Status();
  return Status::from_errno("epoll_ctl", errno);
}

void EventSet::change(int descriptor, std::uint32_t what, Token token) {
  epoll_event event = describe(what, token);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, descriptor, &event);
}

void EventSet::remove(int descriptor) {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, descriptor, nullptr);
}

std::span<const EventSet::Event> EventSet::wait(Deadline deadline) {
  // Rounded up: rather a little late than to be called again for nothing.
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining()).count();
  constexpr std::int64_t kLongest = 3'600'000;
  return collect(static_cast<int>(std::min<std::int64_t>(left, kLongest)));
}

std::span<const EventSet::Event> EventSet::collect(int milliseconds) {
  std::array<epoll_event, std::tuple_size_v<decltype(events_)>> found;
  const int count =
      ::epoll_wait(epoll_.get(), found.data(), static_cast<int>(found.size()), milliseconds);
  if (count <= 0) return {};  // nothing, or interrupted by a signal: the caller looks again
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    events_[i] = {std::bit_cast<Token>(std::uint64_t{found[i].data.u64}), found[i].events};
  }
  return {events_.data(), static_cast<std::size_t>(count)};
}

}  // namespace dlaunch
