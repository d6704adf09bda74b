#include "tests/collective/timed_simulation.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <queue>
#include <span>
#include <utility>
#include <vector>

namespace dlaunch::testing {
namespace {

// What happens at a time, in the order of times.
class Agenda {
 public:
  void add(double when, std::function<void()> what) {
    entries_.push({when, number_++, std::move(what)});
  }
  void run() {
    while (!entries_.empty()) {
      const std::function<void()> what = entries_.top().what;
      entries_.pop();
      what();
    }
  }

 private:
  struct Entry {
    double when;
    std::size_t number;  // of two at the same time the first is first
    std::function<void()> what;
    bool operator<(const Entry& other) const {
      return std::pair(when, number) > std::pair(other.when, other.number);
    }
  };
  std::priority_queue<Entry> entries_;
  std::size_t number_ = 0;
};

// One direction of a host's cable.
struct Cable {
  double free_at = 0;
  /// When something that takes `time` begins that is there at `when`.
  double take(double when, double time) {
    const double begin = std::max(when, free_at);
    free_at = begin + time;
    return begin;
  }
};

class TimedWorld {
 public:
  TimedWorld(std::span<const int> hosts, const SimulatedCosts& costs,
             const std::function<Plan(int)>& plan_of)
      : hosts_(hosts), costs_(costs), out_(hosts.size()), in_(hosts.size()) {
    for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
      ranks_.emplace_back().plan = plan_of(static_cast<int>(rank));
    }
  }

  double run() {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) begin_step(rank, 0);
    agenda_.run();
    double end = 0;
    for (const Rank& rank : ranks_) end = std::max(end, rank.now);
    return end;
  }

 private:
  struct Arrival {
    double first_byte = 0;
    double last_byte = 0;  // of a message from another host
  };
  struct Rank {
    Plan plan;
    std::size_t step = 0;
    double now = 0;
    double sent_until = 0;
    std::size_t sending = 0;                     // messages that have not gone
    bool in_step = false;                        // has computed and waits for its messages
    std::map<int, std::deque<Arrival>> arrived;  // by sender
  };

  bool is_near(std::size_t a, int b) const {
    return hosts_[a] == hosts_[static_cast<std::size_t>(b)];
  }

  double compute(const PlanStep& step) const {
    double time = 0;
    for (const PlannedCopy& copy : step.copies) {
      if (copy.from == copy.into) continue;
      time += costs_.copy_per_element * static_cast<double>(copy.into.count);
    }
    for (const PlannedReduction& reduction : step.reductions) {
      time += costs_.reduce_per_element * static_cast<double>(reduction.into.count) *
              static_cast<double>(reduction.operands.size() - 1);
    }
    return time;
  }

  void begin_step(std::size_t number, double when) {
    Rank& rank = ranks_[number];
    rank.now = when;
    if (rank.step == rank.plan.steps.size()) return;
    const PlanStep& step = rank.plan.steps[rank.step];
    rank.now += compute(step);
    rank.sent_until = rank.now;
    rank.sending = step.sends.size();
    rank.in_step = true;
    double time = rank.now;
    for (std::size_t i = 0; i < step.sends.size(); ++i) {
      const bool near = is_near(number, step.sends[i].peer);
      const SimulatedMessage& cost = near ? costs_.message : costs_.network;
      if (i > 0) time += cost.overhead;
      const double bytes = cost.per_element * static_cast<double>(step.sends[i].from.count);
      agenda_.add(time, [=, this, peer = step.sends[i].peer] {
        if (near) return send_near(number, peer, time, bytes);
        send_far(number, peer, time, bytes);
      });
      if (near) time += bytes;
    }
    agenda_.add(rank.now, [=, this] { end_step_if_possible(number); });
  }

  void send_near(std::size_t from, int peer, double when, double bytes) {
    sent(from, when + bytes);
    const double first = when + costs_.message.latency;
    agenda_.add(first, [=, this] { arrive(from, peer, {.first_byte = first}); });
  }

  void send_far(std::size_t from, int peer, double when, double bytes) {
    const double begin = out_[static_cast<std::size_t>(hosts_[from])].take(when, bytes);
    agenda_.add(begin + bytes, [=, this] { sent(from, begin + bytes); });
    const double there = begin + costs_.network.latency;
    agenda_.add(there, [=, this] {
      const int host = hosts_[static_cast<std::size_t>(peer)];
      const double first = in_[static_cast<std::size_t>(host)].take(there, bytes);
      agenda_.add(first + bytes, [=, this] {
        arrive(from, peer, {.first_byte = first, .last_byte = first + bytes});
      });
    });
  }

  void sent(std::size_t number, double until) {
    Rank& rank = ranks_[number];
    --rank.sending;
    rank.sent_until = std::max(rank.sent_until, until);
    end_step_if_possible(number);
  }

  void arrive(std::size_t from, int peer, const Arrival& arrival) {
    const auto to = static_cast<std::size_t>(peer);
    ranks_[to].arrived[static_cast<int>(from)].push_back(arrival);
    end_step_if_possible(to);
  }

  void end_step_if_possible(std::size_t number) {
    Rank& rank = ranks_[number];
    if (!rank.in_step || rank.sending > 0) return;
    const std::vector<PlannedRecv>& recvs = rank.plan.steps[rank.step].recvs;
    if (std::ranges::any_of(
            recvs, [&](const PlannedRecv& recv) { return rank.arrived[recv.peer].empty(); })) {
      return;
    }
    const double end = std::max(receive(number, recvs), rank.sent_until);
    ++rank.step;
    rank.in_step = false;
    agenda_.add(end, [=, this] { begin_step(number, end); });
  }

  // Takes in what has arrived; returns when that is done.
  double receive(std::size_t number, const std::vector<PlannedRecv>& recvs) {
    Rank& rank = ranks_[number];
    std::vector<std::pair<Arrival, const PlannedRecv*>> arrivals;
    for (const PlannedRecv& recv : recvs) {
      arrivals.emplace_back(rank.arrived[recv.peer].front(), &recv);
      rank.arrived[recv.peer].pop_front();
    }
    std::ranges::stable_sort(arrivals, {}, [](const auto& each) { return each.first.first_byte; });
    double time = rank.now;
    for (std::size_t i = 0; i < arrivals.size(); ++i) {
      const auto& [arrival, recv] = arrivals[i];
      const bool near = is_near(number, recv->peer);
      const auto elements = static_cast<double>(recv->into.count);
      if (i > 0) time += near ? costs_.message.overhead : costs_.network.overhead;
      time = near ? std::max(time, arrival.first_byte) + costs_.message.per_element * elements
                  : std::max(time, arrival.last_byte);
      if (recv->landing != Landing::kCopy) time += costs_.reduce_per_element * elements;
    }
    return time;
  }

  std::span<const int> hosts_;
  const SimulatedCosts costs_;
  std::vector<Rank> ranks_;
  std::vector<Cable> out_;  // by host
  std::vector<Cable> in_;
  Agenda agenda_;
};

}  // namespace

double simulated_time(std::span<const int> hosts, const SimulatedCosts& costs,
                      const std::function<Plan(int)>& plan_of) {
  return TimedWorld(hosts, costs, plan_of).run();
}

}  // namespace dlaunch::testing
