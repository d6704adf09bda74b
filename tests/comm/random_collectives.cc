#include "tests/comm/random_collectives.h"

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <type_traits>
#include <utility>

#include "runtime/collective/algorithms.h"
#include "tests/comm/random_data.h"

namespace dlaunch::testing {
namespace {

using Form = RandomCollective::Form;
using Counts = std::vector<std::size_t>;

// An odd size. Combined by an operation that wraps around nothing and rounds nothing.
using Record = std::array<std::uint8_t, 3>;
constexpr auto kExclusiveOr = [](Record& a, const Record& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<std::uint8_t>(a[i] ^ b[i]);
};

std::size_t sum(std::span<const std::size_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

// Sizes around the limits of inline messages, segments and algorithms are as likely as large ones.
std::size_t random_count(std::mt19937_64& random, std::size_t most) {
  const std::size_t limit = std::size_t{1} << (random() % 20);
  return random() % (std::min(limit, most) + 1);
}

template <typename T>
std::string compare(std::span<const T> result, std::type_identity_t<std::span<const T>> expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (to_double(result[i]) != to_double(expected[i])) {
      return "element " + std::to_string(i) + " is " + std::to_string(to_double(result[i])) +
             ", not " + std::to_string(to_double(expected[i]));
    }
  }
  return "";
}

// Elements in memory of the communicator's own, or in any other.
template <typename T>
class Elements {
 public:
  void allocate(Communicator& comm, bool allocated, std::size_t count) {
    if (allocated) {
      if (auto shared = comm.allocate(count * sizeof(T)); shared.ok()) {
        shared_ = *std::move(shared);
        elements_ = shared_.template as<T>();
        return;
      }
    }
    plain_.resize(count);
    elements_ = plain_;
  }
  std::span<T> span() const { return elements_; }

 private:
  SharedMemory shared_;
  std::vector<T> plain_;
  std::span<T> elements_;
};

// One collective on the buffers of one type, from its call to its check.
template <typename T>
class Operation {
 public:
  Operation(RandomCollective what, Communicator& comm)
      : what_(std::move(what)),
        comm_(comm),
        world_(static_cast<std::size_t>(comm.size())),
        me_(static_cast<std::size_t>(comm.rank())),
        is_root_(comm.rank() == what_.root) {
    call_.kind = what_.kind;
    call_.algorithm = what_.algorithm;
    call_.priority = what_.priority;
    prepare();
  }

  Status run() {
    if (what_.form != Form::kMessages) return comm_.run(call_);
    Status status;
    for (Work& work : start())
      if (Status ended = work.wait(); status.ok()) status = std::move(ended);
    return status;
  }

  std::vector<Work> start() {
    if (what_.form != Form::kMessages) return {comm_.start(call_)};
    return {comm_.start_recv(part_.span(), comes_from(), what_.seed),
            comm_.start_send(whole_.span(), goes_to(), what_.seed)};
  }

  /// Of a call that has ended well.
  std::string wrong() const {
    const std::span<const T> part = part_span_;
    const std::span<const T> whole = whole_.span();
    if (what_.form == Form::kMessages) return compare(part, values(comes_from(), part.size()));
    switch (what_.kind) {
      case CollectiveKind::kBarrier:
        return "";
      case CollectiveKind::kBroadcast:
        return compare(whole, values(what_.root, whole.size()));
      case CollectiveKind::kScatter: {
        const std::vector<T> all = random_values<T>(what_.seed, what_.root, sum(what_.counts));
        return compare(part, std::span<const T>(all).subspan(offset_of(me_), part.size()));
      }
      case CollectiveKind::kGather:
        return is_root_ ? compare(whole, everybodys_parts()) : "";
      case CollectiveKind::kAllGather:
        return compare(whole, everybodys_parts());
      case CollectiveKind::kReduceScatter:
        return wrong_reduction(sum(what_.counts), offset_of(me_), part);
      case CollectiveKind::kReduce:
        return is_root_ ? wrong_reduction(what_.counts[0], 0, part) : "";
      case CollectiveKind::kAllReduce:
        return wrong_reduction(what_.counts[0], 0, whole);
      case CollectiveKind::kAllToAll:
        return wrong_all_to_all(part);
    }
    return "";
  }

 private:
  void prepare() {
    if (what_.form == Form::kMessages) return prepare_message();
    switch (what_.kind) {
      case CollectiveKind::kBarrier:
        return;
      case CollectiveKind::kBroadcast:
        return prepare_broadcast();
      case CollectiveKind::kScatter:
      case CollectiveKind::kGather:
      case CollectiveKind::kAllGather:
      case CollectiveKind::kReduceScatter:
        return prepare_parts();
      case CollectiveKind::kReduce:
        return prepare_reduce();
      case CollectiveKind::kAllReduce:
        return prepare_all_reduce();
      case CollectiveKind::kAllToAll:
        return prepare_all_to_all();
    }
  }
  std::size_t offset_of(std::size_t rank) const { return sum(std::span(what_.counts).first(rank)); }
  // What rank i sends to rank j in an all_to_all.
  std::size_t count_of_pair(std::size_t i, std::size_t j) const {
    return what_.counts[what_.unequal ? (i + j * j) % world_ : 0] / world_;
  }
  Counts counts_sent_by(std::size_t rank) const {
    Counts counts;
    for (std::size_t j = 0; j < world_; ++j) counts.push_back(count_of_pair(rank, j));
    return counts;
  }
  int comes_from() const { return static_cast<int>((me_ + world_ - shift()) % world_); }
  int goes_to() const { return static_cast<int>((me_ + shift()) % world_); }
  std::size_t shift() const { return what_.seed % world_; }

  std::vector<T> values(int rank, std::size_t count) const {
    return random_values<T>(what_.seed, rank, count);
  }
  void fill(std::span<T> elements) const {
    std::ranges::copy(values(comm_.rank(), elements.size()), elements.begin());
  }
  std::vector<T> everybodys_parts() const {
    std::vector<T> all;
    for (std::size_t rank = 0; rank < world_; ++rank) {
      const auto part = values(static_cast<int>(rank), what_.counts[rank]);
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

  std::span<T> allocate_whole(std::size_t count) {
    whole_.allocate(comm_, what_.allocated, count);
    return whole_.span();
  }
  // On its own, or in place within the whole.
  std::span<T> allocate_part(std::size_t count, std::optional<std::size_t> in_place_at) {
    if (in_place_at) return part_span_ = whole_.span().subspan(*in_place_at, count);
    part_.allocate(comm_, what_.allocated, count);
    return part_span_ = part_.span();
  }
  void reduce_with(ReduceOp op) {
    call_.order = what_.order;
    if (what_.form != Form::kRecords) {
      call_.op = op;
      return;
    }
    call_.record = &record_;
    for (std::size_t& count : given_counts_) count /= record_.bytes;
  }

  void prepare_message() {
    whole_.allocate(comm_, what_.allocated, what_.counts[me_]);
    fill(whole_.span());
    allocate_part(what_.counts[static_cast<std::size_t>(comes_from())], std::nullopt);
  }
  void prepare_broadcast() {
    const std::span<T> data = allocate_whole(what_.counts[0]);
    if (is_root_) fill(data);
    call_.input = call_.output = Buffer(data);
    call_.root = what_.root;
  }
  void prepare_all_reduce() {
    const std::span<T> data = allocate_whole(what_.counts[0]);
    fill(data);
    reduce_with(what_.op);
    if (what_.form != Form::kPieces) {
      call_.input = call_.output = Buffer(data);
      return;
    }
    for (std::size_t i = 0; i < 3; ++i) {
      const std::size_t begin = data.size() * i * i / 9;
      pieces_.emplace_back(data.subspan(begin, data.size() * (i + 1) * (i + 1) / 9 - begin));
    }
    call_.pieces = pieces_;
  }
  void prepare_reduce() {
    const std::span<T> input = allocate_whole(what_.counts[0]);
    fill(input);
    const bool in_place = is_root_ && what_.form == Form::kInPlace;
    allocate_part(is_root_ ? input.size() : 0,
                  in_place ? std::optional(std::size_t{0}) : std::nullopt);
    call_.input = Buffer(input);
    call_.output = part_span_;
    call_.root = what_.root;
    reduce_with(what_.op);
  }
  void prepare_parts() {
    const bool scatters = what_.kind == CollectiveKind::kScatter;
    const bool reduces = what_.kind == CollectiveKind::kReduceScatter;
    const bool rooted = scatters || what_.kind == CollectiveKind::kGather;
    const bool has_whole = !rooted || is_root_;
    if (what_.unequal) given_counts_ = what_.counts;
    const std::span<T> whole = allocate_whole(has_whole ? sum(what_.counts) : 0);
    if (scatters || reduces) fill(whole);
    const bool in_place = has_whole && what_.form == Form::kInPlace;
    const std::span<T> part =
        allocate_part(what_.counts[me_], in_place ? std::optional(offset_of(me_)) : std::nullopt);
    if (!scatters && !reduces) fill(part);
    if (rooted) call_.root = what_.root;
    if (reduces) reduce_with(what_.op);
    call_.counts = given_counts_;
    call_.input = Buffer(scatters || reduces ? whole : part);
    call_.output = scatters || reduces ? part : whole;
  }
  void prepare_all_to_all() {
    given_counts_ = counts_sent_by(me_);
    for (std::size_t i = 0; i < world_; ++i) recv_counts_.push_back(count_of_pair(i, me_));
    fill(allocate_whole(sum(given_counts_)));
    call_.input = Buffer(whole_.span());
    call_.output = allocate_part(sum(recv_counts_), std::nullopt);
    if (!what_.unequal) return;
    call_.counts = given_counts_;
    call_.recv_counts = recv_counts_;
  }

  std::string wrong_all_to_all(std::span<const T> received) const {
    std::vector<T> expected;
    for (std::size_t i = 0; i < world_; ++i) {
      const Counts counts = counts_sent_by(i);
      const auto sent = values(static_cast<int>(i), sum(counts));
      const auto begin =
          sent.begin() + static_cast<std::ptrdiff_t>(sum(std::span(counts).first(me_)));
      expected.insert(expected.end(), begin, begin + static_cast<std::ptrdiff_t>(counts[me_]));
    }
    return compare(received, expected);
  }

  // `result` is the part that begins at `first` of the reduction of `count` elements.
  std::string wrong_reduction(std::size_t count, std::size_t first,
                              std::span<const T> result) const {
    std::vector<std::vector<T>> inputs;
    for (std::size_t rank = 0; rank < world_; ++rank)
      inputs.push_back(values(static_cast<int>(rank), count));
    if (what_.form != Form::kRecords)
      return wrong_element(what_.op, inputs, first, {result.begin(), result.end()});
    std::vector<T> expected(result.size());
    if constexpr (std::is_same_v<T, std::uint8_t>) {
      for (const std::vector<T>& input : inputs)
        for (std::size_t i = 0; i < expected.size(); ++i)
          expected[i] = static_cast<T>(expected[i] ^ input[first + i]);
    }
    return compare(result, expected);
  }

  const RandomCollective what_;
  Communicator& comm_;
  const std::size_t world_;
  const std::size_t me_;
  const bool is_root_;
  const RecordReduction record_ = record_reduction_of<Record>(kExclusiveOr);
  Elements<T> whole_;
  Elements<T> part_;
  std::span<T> part_span_;
  std::vector<Buffer> pieces_;
  Counts given_counts_;
  Counts recv_counts_;
  CollectiveCall call_;
};

std::string describe(const RandomCollective& what, std::uint64_t step) {
  constexpr const char* kForms[] = {"", " in place", " in pieces", " of records", ""};
  const bool is_message = what.form == Form::kMessages;
  std::string text =
      "step " + std::to_string(step) + ": " +
      (is_message ? "messages" : std::string(to_string(what.kind))) + " " +
      std::string(to_string(what.op)) + " " + std::string(to_string(what.algorithm)) + " " +
      std::string(to_string(what.dtype)) + kForms[static_cast<int>(what.form)] + " root " +
      std::to_string(what.root) + (what.order == ReduceOrder::kRanks ? " in rank order" : "") +
      (what.asynchronous ? " asynchronous" : " blocking") +
      (what.priority == Priority::kHigh ? " high" : "") + (what.allocated ? " allocated" : "") +
      (what.unequal ? ", unequal counts" : ", counts");
  for (const std::size_t count : what.counts) text += " " + std::to_string(count);
  return text;
}

// Of those that go with its kind.
Form random_form(const RandomCollective& what, std::uint64_t number) {
  using Kind = CollectiveKind;
  const bool all_reduces = what.kind == Kind::kAllReduce;
  const bool reduces =
      all_reduces || what.kind == Kind::kReduce || what.kind == Kind::kReduceScatter;
  switch (number % 5) {
    case 0:
      return Form::kInPlace;
    case 1:
      return all_reduces ? Form::kPieces : Form::kBuffers;
    case 2:
      return reduces ? Form::kRecords : Form::kBuffers;
    default:
      return Form::kBuffers;
  }
}

Algorithm random_algorithm(const RandomCollective& what, std::uint64_t number) {
  const auto algorithms = algorithms_of(what.kind);
  if (algorithms.empty() || number % 3 == 0) return Algorithm::kAuto;
  if (what.form == Form::kPieces || what.form == Form::kRecords) return Algorithm::kAuto;
  const Algorithm algorithm = algorithms[number / 3 % algorithms.size()];
  // Which takes equal parts only.
  return what.unequal && algorithm == Algorithm::kBruck ? Algorithm::kAuto : algorithm;
}

}  // namespace

RandomCollective random_collective(std::uint64_t seed, std::uint64_t step, int world,
                                   std::size_t most_elements) {
  std::seed_seq sequence{seed, seed >> 32, step};
  std::mt19937_64 random(sequence);
  const auto pick = [&](const auto& from) { return from[random() % std::size(from)]; };
  RandomCollective what;
  what.kind = pick(kAllCollectiveKinds);
  what.dtype = pick(kAllDTypes);
  what.op = pick(reductions_of(what.dtype));
  what.root = static_cast<int>(random() % static_cast<std::uint64_t>(world));
  what.asynchronous = random() % 2 == 0;
  what.unequal = random() % 2 == 0;
  what.allocated = random() % 4 == 0;
  what.order = random() % 4 == 0 ? ReduceOrder::kRanks : ReduceOrder::kAny;
  if (what.asynchronous && random() % 3 == 0) what.priority = Priority::kHigh;
  what.form = random() % 10 == 0 ? Form::kMessages : random_form(what, random());
  what.algorithm = random_algorithm(what, random());
  what.seed = random();
  what.counts.assign(static_cast<std::size_t>(world), random_count(random, most_elements));
  if (what.unequal) {
    for (std::size_t& count : what.counts) count = random_count(random, most_elements);
  }
  if (what.form == Form::kRecords) {
    what.dtype = DType::kU8;
    for (std::size_t& count : what.counts) count -= count % sizeof(Record);
  }
  what.description = describe(what, step);
  return what;
}

RandomCollectives::~RandomCollectives() {
  // Their buffers go.
  for (Begun& begun : begun_)
    for (Work& work : begun.works) (void)work.wait().ok();
}

Verdict RandomCollectives::run(const RandomCollective& collective) {
  constexpr std::size_t kMostBegun = 4;
  if (Verdict verdict = begin(collective); !verdict.ok()) return verdict;
  // Some end at once, so that every number of them is on its way now and then.
  const bool all = collective.seed % 5 == 0;
  while (!begun_.empty() && (all || begun_.size() > kMostBegun)) {
    if (Verdict verdict = finish_first(); !verdict.ok()) return verdict;
  }
  return {};
}

Verdict RandomCollectives::begin(const RandomCollective& collective) {
  Verdict verdict;
  visit_dtype(collective.dtype, [&]<typename T>() {
    const auto operation = std::make_shared<Operation<T>>(collective, comm_);
    if (collective.asynchronous) {
      begun_.push_back({.description = collective.description,
                        .works = operation->start(),
                        .wrong = [operation] { return operation->wrong(); }});
      return;
    }
    verdict.status = operation->run();
    if (verdict.status.ok()) verdict.wrong = operation->wrong();
  });
  if (!verdict.ok()) failed_ = collective.description;
  return verdict;
}

Verdict RandomCollectives::finish_first() {
  Verdict verdict;
  Begun& first = begun_.front();
  for (Work& work : first.works)
    if (Status status = work.wait(); verdict.status.ok()) verdict.status = std::move(status);
  if (verdict.status.ok()) verdict.wrong = first.wrong();
  if (!verdict.ok()) failed_ = first.description;
  begun_.pop_front();
  return verdict;
}

Verdict RandomCollectives::finish() {
  while (!begun_.empty()) {
    if (Verdict verdict = finish_first(); !verdict.ok()) return verdict;
  }
  return {};
}

std::string run_random_collectives(Communicator& comm, std::uint64_t seed, std::uint64_t first,
                                   std::uint64_t last, std::size_t most_elements) {
  RandomCollectives collectives(comm);
  Verdict verdict;
  for (std::uint64_t step = first; step < last && verdict.ok(); ++step)
    verdict = collectives.run(random_collective(seed, step, comm.size(), most_elements));
  if (verdict.ok()) verdict = collectives.finish();
  if (verdict.ok()) return "";
  return "seed " + std::to_string(seed) + ", rank " + std::to_string(comm.rank()) + ", " +
         collectives.failed() + ": " +
         (verdict.status.ok() ? verdict.wrong : verdict.status.to_string());
}

}  // namespace dlaunch::testing
