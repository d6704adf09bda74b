#include "trainers/trace/clock_offset.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace dlaunch {
namespace {

constexpr int kRoundTrips = 16;
constexpr std::uint64_t kClockTag = 0x636c6f636bU;  // "clock"

RoundTrip ask(Communicator& world, const std::function<std::int64_t()>& now) {
  std::array<std::int64_t, 1> time{now()};
  RoundTrip trip{.sent = time[0]};
  throw_if_error(world.send(time, 0, kClockTag).within("clocks"));
  throw_if_error(world.recv(time, 0, kClockTag).within("clocks"));
  trip.received = now();
  trip.there = time[0];
  return trip;
}

void answer(Communicator& world, int peer, const std::function<std::int64_t()>& now) {
  std::array<std::int64_t, 1> time{};
  throw_if_error(world.recv(time, peer, kClockTag).within("clocks"));
  time[0] = now();
  throw_if_error(world.send(time, peer, kClockTag).within("clocks"));
}

}  // namespace

ClockOffset offset_of(std::span<const RoundTrip> trips) {
  const RoundTrip& best = *std::ranges::min_element(
      trips, {}, [](const RoundTrip& trip) { return trip.received - trip.sent; });
  const std::int64_t half = (best.received - best.sent) / 2;
  return {.here = best.received, .nanoseconds = best.there - (best.sent + half), .error = half + 1};
}

ClockOffset offset_to_rank_zero(Communicator& world,
                                const std::function<std::int64_t()>& now_nanoseconds) {
  if (world.rank() == 0) {
    for (int peer = 1; peer < world.size(); ++peer)
      for (int i = 0; i < kRoundTrips; ++i) answer(world, peer, now_nanoseconds);
    return {.here = now_nanoseconds()};
  }
  std::vector<RoundTrip> trips;
  trips.reserve(kRoundTrips);
  for (int i = 0; i < kRoundTrips; ++i) trips.push_back(ask(world, now_nanoseconds));
  return offset_of(trips);
}

std::int64_t ClockAlignment::to_rank_zero(std::int64_t here) const {
  const std::int64_t between = last_.here - first_.here;
  const std::int64_t passed = std::clamp<std::int64_t>(here - first_.here, 0, between);
  const double share = between > 0 ? static_cast<double>(passed) / static_cast<double>(between) : 0;
  const auto drift = static_cast<double>(last_.nanoseconds - first_.nanoseconds);
  return here + first_.nanoseconds + std::llround(share * drift);
}

}  // namespace dlaunch
