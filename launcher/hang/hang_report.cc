#include "launcher/hang/hang_report.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "launcher/base/number_list.h"
#include "launcher/failure/report.h"
#include "runtime/base/any_rank.h"

namespace dlaunch {
namespace {

using TimePoint = Deadline::Clock::time_point;

// A collective of a communicator: its name, lane and number.
using Collective = std::tuple<std::string, int, std::uint64_t>;

constexpr std::size_t kMostLast = 4;  // collectives that have ended, of a rank

std::string plural(const char* word, std::size_t count) {
  return word + std::string(count == 1 ? " " : "s ");
}

// "all_reduce #12"
std::string numbered(const ShownActivity& activity) {
  return activity.operation + " #" + std::to_string(activity.sequence);
}

// "world/1, asynchronous"
std::string place_of(const std::string& name, int lane) {
  static constexpr const char* kLanes[] = {"", ", asynchronous", ", of high priority"};
  return name + (lane < 3 ? kLanes[lane] : "");
}

std::string place_of(const ShownActivity& activity) {
  return place_of(activity.name, activity.lane);
}

// "all_reduce #12 f32[1000] (4000 bytes) of world/1", without the time.
std::string describe(const ShownActivity& activity) {
  const bool barrier =
      activity.kind == ActivityKind::kCollective && activity.operation == "barrier";
  const std::string elements = barrier ? ""
                                       : " " + std::string(to_string(activity.dtype)) + "[" +
                                             std::to_string(activity.count) + "] (" +
                                             std::to_string(activity.bytes) + " bytes)";
  const std::string tag = activity.tag == 0 ? "" : " tag " + std::to_string(activity.tag);
  switch (activity.kind) {
    case ActivityKind::kStoreWait:
      return "a wait for the store, which has " + activity.name;
    case ActivityKind::kSend:
      return "send" + elements + " to rank " + std::to_string(activity.peer) + tag + " of " +
             activity.name;
    case ActivityKind::kReceive:
      return "recv" + elements + " from " +
             (activity.peer == kAnyRank ? "any rank" : "rank " + std::to_string(activity.peer)) +
             tag + " of " + activity.name;
    case ActivityKind::kCollective:
    case ActivityKind::kNone:
      break;
  }
  return numbered(activity) + elements + " of " + place_of(activity);
}

// The collectives that ended last: one of each lane, as nothing tells in which order those ended.
std::string last_ones(const ShownRank& shown) {
  std::vector<std::string> last;
  for (const ShownActivity& activity : shown.activities) {
    if (!activity.operation.empty()) {
      last.push_back(numbered(activity) + " of " + place_of(activity));
    }
  }
  if (last.empty()) return "";
  if (last.size() == 1) return "; the last one was " + last.front();
  const std::size_t left_out = last.size() - std::min(last.size(), kMostLast);
  last.resize(last.size() - left_out);
  std::string text = "; the last ones were ";
  for (const std::string& each : last) text += (&each == last.data() ? "" : "; ") + each;
  return text + (left_out > 0 ? "; and " + std::to_string(left_out) + " more" : "");
}

// What the rank is doing, without the time.
std::string doing(const ObservedRank& rank) {
  if (!rank.running) return "has ended";
  std::string text;
  for (const ShownActivity& activity : rank.shown.activities) {
    if (activity.waits()) text += (text.empty() ? "in " : " and in ") + describe(activity);
  }
  if (text.empty() && rank.shown.process == 0) {
    text = "has not come to dlaunch's communicator, or does not use it";
  } else if (text.empty()) {
    text = "in no collective" + last_ones(rank.shown);
  }
  if (rank.state != "sleeping" && rank.state != "running") {
    text += "; the process is " + rank.state;
  }
  return text;
}

std::optional<TimePoint> since(const ShownRank& shown) {
  std::optional<TimePoint> earliest;
  for (const ShownActivity& activity : shown.activities) {
    if (activity.since && (!earliest || *activity.since < *earliest)) earliest = activity.since;
  }
  return earliest;
}

// By collective, the ranks of it that have not come to it yet.
struct Waiting {
  std::set<int> inside;
  std::set<int> missing;
  int unseen = 0;  // members of which nothing is known here
};

Waiting who_waits(const Collective& collective, const std::vector<ObservedRank>& ranks, int world) {
  Waiting waiting;
  const std::uint64_t sequence = std::get<2>(collective);
  int members = 0;
  int seen = 0;
  std::set<int> strangers;
  for (const ObservedRank& rank : ranks) {
    const auto found = std::ranges::find_if(rank.shown.activities, [&](const auto& activity) {
      return activity.kind != ActivityKind::kStoreWait &&
             activity.name == std::get<0>(collective) && activity.lane == std::get<1>(collective);
    });
    if (found == rank.shown.activities.end()) {
      strangers.insert(rank.rank);
      continue;
    }
    ++seen;
    members = found->members;
    if (found->kind == ActivityKind::kCollective && found->sequence == sequence) {
      waiting.inside.insert(rank.rank);
    } else if (found->sequence < sequence) {
      waiting.missing.insert(rank.rank);
    }
  }
  if (members == world) {
    waiting.missing.insert(strangers.begin(), strangers.end());
    seen += static_cast<int>(strangers.size());
  }
  waiting.unseen = members - seen;
  return waiting;
}

std::set<Collective> collectives_of(const std::vector<ObservedRank>& ranks) {
  std::set<Collective> found;
  for (const ObservedRank& rank : ranks) {
    for (const ShownActivity& activity : rank.shown.activities) {
      if (activity.kind != ActivityKind::kCollective) continue;
      found.emplace(activity.name, activity.lane, activity.sequence);
    }
  }
  return found;
}

std::string say(const std::set<int>& numbers) {
  return say_number_list(std::vector<int>(numbers.begin(), numbers.end()));
}

}  // namespace

std::vector<std::string> describe_ranks(const std::vector<ObservedRank>& ranks, int world,
                                        TimePoint now) {
  struct Group {
    std::vector<int> ranks;
    std::optional<TimePoint> since;
  };
  std::map<std::string, Group> groups;
  for (const ObservedRank& rank : ranks) {
    Group& group = groups[doing(rank)];
    group.ranks.push_back(rank.rank);
    const auto began = since(rank.shown);
    if (began && (!group.since || *began < *group.since)) group.since = began;
  }
  std::vector<std::string> lines;
  for (const auto& [what, group] : groups) {
    lines.push_back(plural("rank", group.ranks.size()) + say_number_list(group.ranks) + ": " +
                    what);
    if (group.since) lines.back() += ", for " + seconds(now - *group.since);
  }
  for (const Collective& collective : collectives_of(ranks)) {
    const Waiting waiting = who_waits(collective, ranks, world);
    if (waiting.missing.empty() && waiting.unseen <= 0) continue;
    const auto& [name, lane, sequence] = collective;
    std::string line =
        "missing in #" + std::to_string(sequence) + " of " + place_of(name, lane) + ": ";
    if (!waiting.missing.empty()) {
      line += plural("rank", waiting.missing.size()) + say(waiting.missing);
    }
    if (waiting.unseen > 0) {
      line += (waiting.missing.empty() ? "" : "; ") + std::to_string(waiting.unseen) +
              " more on other nodes may be";
    }
    lines.push_back(line);
  }
  return lines;
}

std::vector<ObservedRank> by_interest(const std::vector<ObservedRank>& ranks, int world) {
  std::set<int> missing;
  for (const Collective& collective : collectives_of(ranks)) {
    const Waiting waiting = who_waits(collective, ranks, world);
    missing.insert(waiting.missing.begin(), waiting.missing.end());
  }
  std::set<std::string> seen;
  std::multimap<int, const ObservedRank*> ordered;
  for (const ObservedRank& rank : ranks) {
    if (!rank.running) continue;
    const bool first_of_group = seen.insert(doing(rank)).second;
    ordered.emplace(missing.contains(rank.rank) ? 0 : (first_of_group ? 1 : 2), &rank);
  }
  std::vector<ObservedRank> result;
  for (const auto& [order, rank] : ordered) result.push_back(*rank);
  return result;
}

}  // namespace dlaunch
