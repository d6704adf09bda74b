#include "tests/comm/random_collectives.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "tests/comm/random_data.h"

namespace dlaunch::testing {
namespace {

template <typename T>
using Inputs = std::vector<std::vector<T>>;  // by rank

std::size_t sum(const std::vector<std::size_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

// Sizes around the limits of inline messages, segments and algorithms are as likely as large ones.
std::size_t random_count(std::mt19937_64& random, std::size_t most) {
  const std::size_t limit = std::size_t{1} << (random() % 20);
  return random() % (std::min(limit, most) + 1);
}

// Everybody's input, `counts[rank]` or `count` elements.
template <typename T>
Inputs<T> inputs_of(const RandomCollective& what, int world, std::size_t count) {
  Inputs<T> inputs;
  for (int rank = 0; rank < world; ++rank) {
    inputs.push_back(random_values<T>(what.seed, rank, count));
  }
  return inputs;
}

template <typename T>
std::string compare(const std::vector<T>& result, const std::vector<T>& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (to_double(result[i]) != to_double(expected[i])) {
      return "element " + std::to_string(i) + " is " + std::to_string(to_double(result[i])) +
             ", not " + std::to_string(to_double(expected[i]));
    }
  }
  return "";
}

// The calls, blocking or not, on the buffers of one type.
template <typename T>
class Call {
 public:
  Call(const RandomCollective& what, Communicator& comm)
      : what_(what),
        comm_(comm),
        me_(static_cast<std::size_t>(comm.rank())),
        root_(static_cast<std::size_t>(what.root)) {}

  Verdict all_reduce() {
    const auto inputs = inputs_of<T>(what_, comm_.size(), what_.counts[0]);
    std::vector<T> data = inputs[me_];
    Status status = what_.asynchronous
                        ? comm_.start_all_reduce(data, what_.op, what_.algorithm).wait()
                        : comm_.all_reduce(data, what_.op, what_.algorithm);
    if (!status.ok()) return {std::move(status), ""};
    return {Status(), wrong_element(what_.op, inputs, 0, data)};
  }

  Verdict reduce() {
    const auto inputs = inputs_of<T>(what_, comm_.size(), what_.counts[0]);
    std::vector<T> result(me_ == root_ ? what_.counts[0] : 0);
    Status status = what_.asynchronous
                        ? comm_.start_reduce(inputs[me_], result, what_.op, what_.root).wait()
                        : comm_.reduce(inputs[me_], result, what_.op, what_.root);
    if (!status.ok() || me_ != root_) return {std::move(status), ""};
    return {Status(), wrong_element(what_.op, inputs, 0, result)};
  }

  Verdict reduce_scatter() {
    const auto inputs = inputs_of<T>(what_, comm_.size(), sum(what_.counts));
    std::vector<T> result(what_.counts[me_]);
    Status status =
        what_.asynchronous
            ? comm_.start_reduce_scatter(inputs[me_], result, what_.op, given_counts()).wait()
            : comm_.reduce_scatter(inputs[me_], result, what_.op, given_counts());
    if (!status.ok()) return {std::move(status), ""};
    return {Status(), wrong_element(what_.op, inputs, offset_of(me_), result)};
  }

  Verdict broadcast() {
    const auto expected = random_values<T>(what_.seed, what_.root, what_.counts[0]);
    std::vector<T> data = me_ == root_ ? expected : std::vector<T>(expected.size());
    Status status = what_.asynchronous ? comm_.start_broadcast(data, what_.root).wait()
                                       : comm_.broadcast(data, what_.root);
    if (!status.ok()) return {std::move(status), ""};
    return {Status(), compare(data, expected)};
  }

  Verdict scatter() {
    const auto whole = random_values<T>(what_.seed, what_.root, sum(what_.counts));
    std::vector<T> result(what_.counts[me_]);
    const std::vector<T> input = me_ == root_ ? whole : std::vector<T>();
    Status status = what_.asynchronous
                        ? comm_.start_scatter(input, result, what_.root, given_counts()).wait()
                        : comm_.scatter(input, result, what_.root, given_counts());
    if (!status.ok()) return {std::move(status), ""};
    const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(offset_of(me_));
    return {Status(),
            compare(result, {begin, begin + static_cast<std::ptrdiff_t>(what_.counts[me_])})};
  }

  Verdict gather(bool to_all) {
    std::vector<T> expected;
    std::vector<T> mine;
    for (std::size_t rank = 0; rank < what_.counts.size(); ++rank) {
      const auto part = random_values<T>(what_.seed, static_cast<int>(rank), what_.counts[rank]);
      if (rank == me_) mine = part;
      expected.insert(expected.end(), part.begin(), part.end());
    }
    const bool receives = to_all || me_ == root_;
    std::vector<T> result(receives ? expected.size() : 0);
    Status status;
    if (to_all) {
      status = what_.asynchronous ? comm_.start_all_gather(mine, result, given_counts()).wait()
                                  : comm_.all_gather(mine, result, given_counts());
    } else {
      status = what_.asynchronous
                   ? comm_.start_gather(mine, result, what_.root, given_counts()).wait()
                   : comm_.gather(mine, result, what_.root, given_counts());
    }
    if (!status.ok() || !receives) return {std::move(status), ""};
    return {Status(), compare(result, expected)};
  }

 private:
  std::span<const std::size_t> given_counts() const {
    return what_.unequal ? std::span<const std::size_t>(what_.counts)
                         : std::span<const std::size_t>();
  }
  std::size_t offset_of(std::size_t rank) const {
    return std::accumulate(what_.counts.begin(),
                           what_.counts.begin() + static_cast<std::ptrdiff_t>(rank),
                           std::size_t{0});
  }

  const RandomCollective& what_;
  Communicator& comm_;
  const std::size_t me_;
  const std::size_t root_;
};

template <typename T>
Verdict carry_out_typed(const RandomCollective& what, Communicator& comm) {
  Call<T> call(what, comm);
  switch (what.kind) {
    case CollectiveKind::kBroadcast:
      return call.broadcast();
    case CollectiveKind::kScatter:
      return call.scatter();
    case CollectiveKind::kGather:
      return call.gather(/*to_all=*/false);
    case CollectiveKind::kAllGather:
      return call.gather(/*to_all=*/true);
    case CollectiveKind::kReduce:
      return call.reduce();
    case CollectiveKind::kReduceScatter:
      return call.reduce_scatter();
    case CollectiveKind::kAllReduce:
      return call.all_reduce();
    default:
      return {what.asynchronous ? comm.start_barrier().wait() : comm.barrier(), ""};
  }
}

}  // namespace

RandomCollective random_collective(std::uint64_t seed, std::uint64_t step, int world,
                                   std::size_t most_elements) {
  std::seed_seq sequence{seed, seed >> 32, step};
  std::mt19937_64 random(sequence);
  const auto pick = [&](const auto& from) { return from[random() % std::size(from)]; };
  constexpr CollectiveKind kKinds[] = {
      CollectiveKind::kBarrier,       CollectiveKind::kBroadcast, CollectiveKind::kScatter,
      CollectiveKind::kGather,        CollectiveKind::kAllGather, CollectiveKind::kReduce,
      CollectiveKind::kReduceScatter, CollectiveKind::kAllReduce, CollectiveKind::kAllReduce};
  constexpr Algorithm kAlgorithms[] = {Algorithm::kAuto, Algorithm::kRing, Algorithm::kButterfly};
  RandomCollective what;
  what.kind = pick(kKinds);
  what.dtype = pick(kAllDTypes);
  what.op = pick(kAllReduceOps);
  what.algorithm = pick(kAlgorithms);
  what.root = static_cast<int>(random() % static_cast<std::uint64_t>(world));
  what.asynchronous = random() % 2 == 0;
  what.unequal = random() % 2 == 0;
  what.seed = random();
  what.counts.assign(static_cast<std::size_t>(world), random_count(random, most_elements));
  if (what.unequal) {
    for (std::size_t& count : what.counts) count = random_count(random, most_elements);
  }
  what.description = "step " + std::to_string(step) + ": " + std::string(to_string(what.kind)) +
                     " " + std::string(to_string(what.op)) + " " +
                     std::string(to_string(what.algorithm)) + " " +
                     std::string(to_string(what.dtype)) + " root " + std::to_string(what.root) +
                     (what.asynchronous ? " asynchronous" : " blocking") + ", counts";
  for (const std::size_t count : what.counts) what.description += " " + std::to_string(count);
  return what;
}

Verdict carry_out(const RandomCollective& collective, Communicator& comm) {
  Verdict verdict;
  visit_dtype(collective.dtype,
              [&]<typename T>() { verdict = carry_out_typed<T>(collective, comm); });
  return verdict;
}

std::string run_random_collectives(Communicator& comm, std::uint64_t seed, std::uint64_t first,
                                   std::uint64_t last, std::size_t most_elements) {
  for (std::uint64_t step = first; step < last; ++step) {
    const RandomCollective what = random_collective(seed, step, comm.size(), most_elements);
    const Verdict verdict = carry_out(what, comm);
    const std::string& wrong = verdict.status.ok() ? verdict.wrong : verdict.status.to_string();
    if (!wrong.empty()) {
      return "seed " + std::to_string(seed) + ", rank " + std::to_string(comm.rank()) + ", " +
             what.description + ": " + wrong;
    }
  }
  return "";
}

}  // namespace dlaunch::testing
