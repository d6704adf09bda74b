#include "launcher/hang/observed_text.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <limits>

#include <nlohmann/json.hpp>

namespace dlaunch {
namespace {

using nlohmann::json;
using TimePoint = Deadline::Clock::time_point;

constexpr std::int64_t kLongestAge = std::chrono::nanoseconds(std::chrono::hours(24 * 366)).count();
constexpr int kMostLanes = 64;

// An activity's times, in nanoseconds; null: none.
json age_of(const std::optional<TimePoint>& time, TimePoint now) {
  if (!time) return nullptr;
  return std::max<std::int64_t>(0, std::chrono::nanoseconds(now - *time).count());
}

// Throws json's exception, also for a fraction and for what is out of range: json would cut both.
template <typename Integer>
Integer number(const json& object, const char* key, std::int64_t least, std::int64_t most) {
  const auto whole = object.at(key).get_ref<const json::number_integer_t&>();
  if (whole < least || whole > most) {
    throw json::other_error::create(501, std::string(key) + " is out of range", &object);
  }
  return static_cast<Integer>(whole);
}

constexpr std::int64_t kMostInt = std::numeric_limits<int>::max();
constexpr std::int64_t kMostCount = std::numeric_limits<std::int64_t>::max();

std::optional<TimePoint> time_of(const json& object, const char* key, TimePoint now) {
  if (object.at(key).is_null()) return std::nullopt;
  return now - std::chrono::nanoseconds(number<std::int64_t>(object, key, 0, kLongestAge));
}

json to_json(const ShownActivity& activity, TimePoint now) {
  const auto bounded = [](std::uint64_t value) {
    return std::min(value, static_cast<std::uint64_t>(kMostCount));
  };
  return {{"kind", static_cast<int>(activity.kind)},
          {"name", activity.name},
          {"operation", activity.operation},
          {"sequence", bounded(activity.sequence)},
          {"tag", bounded(activity.tag)},
          {"dtype", static_cast<int>(activity.dtype)},
          {"lane", activity.lane},
          {"count", bounded(activity.count)},
          {"bytes", bounded(activity.bytes)},
          {"peer", activity.peer},
          {"members", activity.members},
          {"age", age_of(activity.since, now)}};
}

ShownActivity activity_from(const json& object, TimePoint now) {
  return {.kind = number<ActivityKind>(object, "kind", 0,
                                       static_cast<std::int64_t>(ActivityKind::kStoreWait)),
          .name = object.at("name").get<std::string>(),
          .operation = object.at("operation").get<std::string>(),
          .sequence = number<std::uint64_t>(object, "sequence", 0, kMostCount),
          .tag = number<std::uint64_t>(object, "tag", 0, kMostCount),
          .dtype = number<DType>(object, "dtype", 0, std::ssize(kAllDTypes) - 1),
          .lane = number<int>(object, "lane", 0, kMostLanes),
          .count = number<std::uint64_t>(object, "count", 0, kMostCount),
          .bytes = number<std::uint64_t>(object, "bytes", 0, kMostCount),
          .peer = number<int>(object, "peer", -1, kMostInt),
          .members = number<int>(object, "members", 0, kMostInt),
          .since = time_of(object, "age", now)};
}

ObservedRank rank_from(const json& object, TimePoint now) {
  ObservedRank rank{.rank = number<int>(object, "rank", 0, kMostInt),
                    .pid = number<pid_t>(object, "pid", -1, kMostInt),
                    .running = object.at("running").get<bool>(),
                    .state = object.at("state").get<std::string>(),
                    .shown = {}};
  rank.shown.process = number<pid_t>(object, "process", 0, kMostInt);
  for (const json& activity : object.at("activities")) {
    rank.shown.activities.push_back(activity_from(activity, now));
  }
  return rank;
}

}  // namespace

std::string serialize(const std::vector<ObservedRank>& ranks, TimePoint now) {
  json all = json::array();
  for (const ObservedRank& rank : ranks) {
    json activities = json::array();
    for (const ShownActivity& activity : rank.shown.activities) {
      activities.push_back(to_json(activity, now));
    }
    all.push_back({{"rank", rank.rank},
                   {"pid", rank.pid},
                   {"running", rank.running},
                   {"state", rank.state},
                   {"process", rank.shown.process},
                   {"activities", std::move(activities)}});
  }
  // Names of communicators are the program's, and need not be UTF-8.
  return all.dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<std::vector<ObservedRank>> parse_observed(std::string_view text, TimePoint now) {
  try {
    std::vector<ObservedRank> ranks;
    const json all = json::parse(text);
    for (const json& rank : all.get_ref<const json::array_t&>()) {
      ranks.push_back(rank_from(rank, now));
    }
    return ranks;
  } catch (const json::exception& error) {
    return Status(StatusCode::kInvalidArgument, std::string("observed ranks: ") + error.what());
  }
}

}  // namespace dlaunch
