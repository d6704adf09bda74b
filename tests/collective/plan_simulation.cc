#include "tests/collective/plan_simulation.h"

#include <optional>
#include <utility>

#include "runtime/collective/embedding.h"

namespace dlaunch::testing {
namespace {

bool overlap(const Slice& a, const Slice& b) {
  return a.region == b.region && a.count > 0 && b.count > 0 && a.offset < b.offset + b.count &&
         b.offset < a.offset + a.count;
}

void add(Symbol& left, const Symbol& right) {
  for (const auto& [part, times] : right.parts) left.parts[part] += times;
  left.divisions += right.divisions;
  left.order.insert(left.order.end(), right.order.begin(), right.order.end());
  left.nested = left.nested || right.nested || right.order.size() != 1;
}

std::optional<std::string> broken_rule_of_reductions(const PlanStep& step) {
  for (const PlannedReduction& reduction : step.reductions) {
    if (reduction.into.region == Region::kInput) return "writes the input";
    if (reduction.operands.empty()) return "reduces nothing";
    for (const Slice& operand : reduction.operands) {
      if (operand.count != reduction.into.count) return "reduces slices of different lengths";
      if (overlap(operand, reduction.into) && operand != reduction.into) {
        return "reduces onto a part of an operand";
      }
    }
  }
  return std::nullopt;
}

// A rule of plan.h that one step breaks.
std::optional<std::string> broken_rule(const PlanStep& step) {
  if (auto rule = broken_rule_of_reductions(step)) return rule;
  for (std::size_t i = 0; i < step.recvs.size(); ++i) {
    const PlannedRecv& recv = step.recvs[i];
    if (recv.into.region == Region::kInput) return "writes the input";
    if (recv.landing != Landing::kCopy && recv.with.count != recv.into.count) {
      return "reduces slices of different lengths";
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (step.recvs[j].peer == recv.peer) return "receives twice from one peer in a step";
      if (overlap(step.recvs[j].into, recv.into)) return "receives twice into one slice";
    }
    for (const PlannedSend& send : step.sends) {
      const bool in_place = recv.landing != Landing::kCopy && recv.with == recv.into;
      if (overlap(send.from, recv.into) && !in_place) return "overwrites what it sends";
    }
  }
  for (std::size_t i = 0; i < step.sends.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (step.sends[j].peer == step.sends[i].peer) return "sends twice to one peer in a step";
    }
  }
  return std::nullopt;
}

class World {
 public:
  explicit World(std::vector<SimulatedRank> ranks)
      : ranks_(std::move(ranks)), step_(ranks_.size(), 0), open_(ranks_.size()) {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) enter(rank);
  }

  std::string run() {
    bool moved = true;
    while (moved && error_.empty()) {
      moved = false;
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank) moved = exchange(rank) || moved;
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank) moved = leave(rank) || moved;
    }
    for (std::size_t rank = 0; rank < ranks_.size() && error_.empty(); ++rank) {
      if (step_[rank] < ranks_[rank].plan.steps.size()) {
        fail(rank, "is stuck in step " + std::to_string(step_[rank]));
      }
    }
    return error_;
  }

  std::vector<SimulatedRank>& ranks() { return ranks_; }

 private:
  // The messages of a rank's current step that have not moved yet, with what they carry.
  struct Open {
    std::vector<PlannedSend> sends;
    std::vector<SymbolVector> payloads;
    std::vector<PlannedRecv> recvs;
  };

  void fail(std::size_t rank, const std::string& what) {
    if (error_.empty()) error_ = "rank " + std::to_string(rank) + " " + what;
  }

  SymbolVector* region(std::size_t rank, const Slice& slice) {
    SimulatedRank& simulated = ranks_[rank];
    SymbolVector& memory = slice.region == Region::kInput    ? simulated.input
                           : slice.region == Region::kOutput ? simulated.output
                                                             : simulated.scratch;
    if (slice.count > 0 && slice.offset + slice.count > memory.size()) {
      fail(rank, "leaves its memory");
      return nullptr;
    }
    return &memory;
  }

  SymbolVector read(std::size_t rank, const Slice& slice) {
    const SymbolVector* memory = region(rank, slice);
    if (memory == nullptr || slice.count == 0) return {};
    const auto begin = memory->begin() + static_cast<std::ptrdiff_t>(slice.offset);
    return {begin, begin + static_cast<std::ptrdiff_t>(slice.count)};
  }

  void write(std::size_t rank, const Slice& slice, const SymbolVector& values) {
    SymbolVector* memory = region(rank, slice);
    if (memory == nullptr) return;
    for (std::size_t i = 0; i < slice.count; ++i) (*memory)[slice.offset + i] = values[i];
  }

  void enter(std::size_t rank) {
    if (step_[rank] == ranks_[rank].plan.steps.size()) return;
    const PlanStep& step = ranks_[rank].plan.steps[step_[rank]];
    if (const auto rule = broken_rule(step)) fail(rank, *rule);
    for (const PlannedCopy& copy : step.copies) write(rank, copy.into, read(rank, copy.from));
    for (const PlannedReduction& reduction : step.reductions) reduce(rank, reduction);
    for (const Slice& slice : step.divisions) {
      SymbolVector values = read(rank, slice);
      for (Symbol& symbol : values) ++symbol.divisions;
      write(rank, slice, values);
    }
    Open& open = open_[rank];
    open.sends = step.sends;
    open.recvs = step.recvs;
    open.payloads.clear();
    for (const PlannedSend& send : step.sends) open.payloads.push_back(read(rank, send.from));
  }

  void reduce(std::size_t rank, const PlannedReduction& reduction) {
    SymbolVector sum = read(rank, reduction.operands.front());
    for (std::size_t i = 1; i < reduction.operands.size(); ++i) {
      const SymbolVector operand = read(rank, reduction.operands[i]);
      for (std::size_t k = 0; k < sum.size(); ++k) add(sum[k], operand[k]);
    }
    for (Symbol& symbol : sum) symbol.divisions += reduction.complete ? 1 : 0;
    write(rank, reduction.into, sum);
  }

  bool exchange(std::size_t sender) {
    Open& from = open_[sender];
    bool moved = false;
    for (std::size_t i = 0; i < from.sends.size();) {
      const auto receiver = static_cast<std::size_t>(from.sends[i].peer);
      Open& to = open_[receiver];
      std::size_t match = 0;
      while (match < to.recvs.size() && to.recvs[match].peer != static_cast<int>(sender)) ++match;
      if (match == to.recvs.size()) {
        ++i;
        continue;
      }
      deliver(receiver, to.recvs[match], from.payloads[i]);
      to.recvs.erase(to.recvs.begin() + static_cast<std::ptrdiff_t>(match));
      from.sends.erase(from.sends.begin() + static_cast<std::ptrdiff_t>(i));
      from.payloads.erase(from.payloads.begin() + static_cast<std::ptrdiff_t>(i));
      moved = true;
    }
    return moved;
  }

  void deliver(std::size_t rank, const PlannedRecv& recv, SymbolVector payload) {
    if (payload.size() != recv.into.count) return fail(rank, "receives another count than sent");
    if (recv.landing != Landing::kCopy) {
      SymbolVector with = read(rank, recv.with);
      if (recv.landing == Landing::kReduce) std::swap(with, payload);  // the left operand
      for (std::size_t i = 0; i < payload.size(); ++i) add(payload[i], with[i]);
    }
    write(rank, recv.into, payload);
  }

  bool leave(std::size_t rank) {
    const Open& open = open_[rank];
    if (step_[rank] == ranks_[rank].plan.steps.size() || !open.sends.empty() ||
        !open.recvs.empty()) {
      return false;
    }
    ++step_[rank];
    enter(rank);
    return true;
  }

  std::vector<SimulatedRank> ranks_;
  std::vector<std::size_t> step_;
  std::vector<Open> open_;
  std::string error_;
};

SymbolVector input_of(int rank, std::size_t count) {
  SymbolVector input;
  for (std::size_t i = 0; i < count; ++i) input.push_back(input_symbol(rank, i));
  return input;
}

SimulationResult run(std::vector<SimulatedRank> ranks) {
  World world(std::move(ranks));
  SimulationResult result{.error = world.run()};
  for (SimulatedRank& rank : world.ranks()) result.outputs.push_back(std::move(rank.output));
  return result;
}

}  // namespace

bool Symbol::in_rank_order() const {
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (order[i] != static_cast<int>(i)) return false;
  }
  return !nested;
}

SimulationResult simulate(int world, const std::function<std::size_t(int)>& input_count,
                          const std::function<std::size_t(int)>& output_count,
                          const std::function<Plan(int)>& plan_of) {
  std::vector<SimulatedRank> ranks(static_cast<std::size_t>(world));
  for (int rank = 0; rank < world; ++rank) {
    SimulatedRank& simulated = ranks[static_cast<std::size_t>(rank)];
    simulated.plan = plan_of(rank);
    simulated.input = input_of(rank, input_count(rank));
    simulated.output.resize(output_count(rank));
    simulated.scratch.resize(simulated.plan.scratch);
  }
  return run(std::move(ranks));
}

SimulationResult simulate_in_place(int world, std::size_t count,
                                   const std::function<Plan(int)>& plan_of) {
  std::vector<SimulatedRank> ranks(static_cast<std::size_t>(world));
  for (int rank = 0; rank < world; ++rank) {
    SimulatedRank& simulated = ranks[static_cast<std::size_t>(rank)];
    append(simulated.plan, plan_of(rank), {.input = {Region::kOutput}});
    simulated.output = input_of(rank, count);
    simulated.scratch.resize(simulated.plan.scratch);
  }
  return run(std::move(ranks));
}

SimulationResult simulate(int world, std::size_t input_count, std::size_t output_count,
                          const std::function<Plan(int)>& plan_of) {
  return simulate(
      world, [=](int) { return input_count; }, [=](int) { return output_count; }, plan_of);
}

Symbol input_symbol(int rank, std::size_t index) {
  return {.parts = {{{rank, index}, 1}}, .order = {rank}};
}

Symbol reduced_symbol(int world, std::size_t index) {
  Symbol symbol{.divisions = 1};
  for (int rank = 0; rank < world; ++rank) symbol.parts[{rank, index}] = 1;
  return symbol;
}

}  // namespace dlaunch::testing
