#include "tests/collective/timed_simulation.h"

#include <algorithm>
#include <map>
#include <queue>
#include <utility>
#include <vector>

namespace dlaunch::testing {
namespace {

class TimedWorld {
 public:
  TimedWorld(int world, const SimulatedCosts& costs, const std::function<Plan(int)>& plan_of)
      : costs_(costs),
        now_(static_cast<std::size_t>(world)),
        step_(now_.size()),
        sent_(now_.size()),
        sent_until_(now_.size()) {
    for (int rank = 0; rank < world; ++rank) plans_.push_back(plan_of(rank));
  }

  double run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < plans_.size(); ++rank) moved = advance(rank) || moved;
    }
    return *std::max_element(now_.begin(), now_.end());
  }

 private:
  struct Arrival {
    double when;
    double elements;
    bool reduced;
  };

  double compute(const PlanStep& step) const {
    double time = 0;
    for (const PlannedCopy& copy : step.copies) {
      if (!(copy.from == copy.into))
        time += costs_.copy_per_element * static_cast<double>(copy.into.count);
    }
    for (const PlannedReduction& reduction : step.reductions) {
      time += costs_.reduce_per_element * static_cast<double>(reduction.into.count) *
              static_cast<double>(reduction.operands.size() - 1);
    }
    return time;
  }

  // Puts the messages of a rank's step on their way; returns when the last byte has gone.
  double send(std::size_t rank, const PlanStep& step) {
    double time = now_[rank];
    for (std::size_t i = 0; i < step.sends.size(); ++i) {
      const PlannedSend& send = step.sends[i];
      if (i > 0) time += costs_.overhead;
      messages_[{static_cast<int>(rank), send.peer}].push(time + costs_.latency);
      time += costs_.per_element * static_cast<double>(send.from.count);
    }
    return time;
  }

  bool advance(std::size_t rank) {
    bool moved = false;
    while (step_[rank] < plans_[rank].steps.size()) {
      const PlanStep& step = plans_[rank].steps[step_[rank]];
      if (!sent_[rank]) {
        now_[rank] += compute(step);
        sent_until_[rank] = send(rank, step);
        sent_[rank] = true;
        moved = true;
      }
      std::vector<Arrival> arrivals;
      for (const PlannedRecv& recv : step.recvs) {
        const auto found = messages_.find({recv.peer, static_cast<int>(rank)});
        if (found == messages_.end() || found->second.empty()) return moved;
        arrivals.push_back({found->second.front(), static_cast<double>(recv.into.count),
                            recv.landing != Landing::kCopy});
      }
      for (const PlannedRecv& recv : step.recvs) {
        messages_[{recv.peer, static_cast<int>(rank)}].pop();
      }
      std::ranges::sort(arrivals, {}, &Arrival::when);
      double time = now_[rank] - costs_.overhead;
      for (const Arrival& arrival : arrivals) {
        time =
            std::max(time + costs_.overhead, arrival.when) + costs_.per_element * arrival.elements;
        if (arrival.reduced) time += costs_.reduce_per_element * arrival.elements;
      }
      now_[rank] = std::max({now_[rank], time, sent_until_[rank]});
      ++step_[rank];
      sent_[rank] = false;
      moved = true;
    }
    return moved;
  }

  SimulatedCosts costs_;
  std::vector<Plan> plans_;
  std::vector<double> now_;
  std::vector<std::size_t> step_;
  std::vector<bool> sent_;          // the messages of this step are on their way
  std::vector<double> sent_until_;  // and have gone by then
  std::map<std::pair<int, int>, std::queue<double>> messages_;  // when their first bytes arrive
};

}  // namespace

double simulated_time(int world, const SimulatedCosts& costs,
                      const std::function<Plan(int)>& plan_of) {
  return TimedWorld(world, costs, plan_of).run();
}

}  // namespace dlaunch::testing
