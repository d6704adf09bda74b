#include "runtime/collective/shared_plan.h"

#include <algorithm>

namespace dlaunch {
namespace {

using Action = SharedAction;
using Kind = SharedAction::Kind;
using Wait = SharedStep::Wait;

constexpr std::size_t kCacheLine = 64;
// Of a vector that is reduced in one operation, so much per member is reduced and then collected.
constexpr std::size_t kRoundBytes = std::size_t{256} << 10;

class Builder {
 public:
  SharedStep& step(Wait wait, std::uint32_t stage, int member = -1) {
    close();
    SharedStep& added = plan_.steps.emplace_back();
    added.wait = wait;
    added.stage = stage;
    added.member = member;
    added.operation = operation_;
    added.first_action = static_cast<std::uint32_t>(plan_.actions.size());
    return added;
  }

  void act(const Action& action) {
    if (action.count == 0) return;
    if (action.kind == Kind::kExpose && plan_.actions.size() > plan_.steps.back().first_action) {
      // What lies behind the last one in the vector and in the slot is copied together with it.
      Action& last = plan_.actions.back();
      if (last.from + last.count == action.from && last.slot + last.count == action.slot) {
        last.count += action.count;
        return;
      }
    }
    plan_.actions.push_back(action);
  }

  // All steps from here on belong to the next operation.
  void next_operation() {
    if (!plan_.steps.empty()) ++operation_;
  }

  SharedPlan finish() {
    close();
    plan_.operations = operation_ + 1;
    return std::move(plan_);
  }

 private:
  void close() {
    if (!plan_.steps.empty()) {
      plan_.steps.back().last_action = static_cast<std::uint32_t>(plan_.actions.size());
    }
  }

  SharedPlan plan_;
  std::uint32_t operation_ = 0;
};

std::size_t whole(const SharedShape& shape) {
  return shape.parts.total();
}

bool exposes_part(const SharedShape& shape) {
  return shape.kind == CollectiveKind::kAllGather || shape.kind == CollectiveKind::kGather;
}

bool has_parts(const SharedShape& shape) {
  return shape.kind == CollectiveKind::kScatter || shape.kind == CollectiveKind::kReduceScatter ||
         shape.kind == CollectiveKind::kAllToAll;
}

// The elements of the longest input.
std::size_t exposed(const SharedShape& shape) {
  return exposes_part(shape) ? shape.parts.longest() : whole(shape);
}

bool fits_slot(const SharedShape& shape, std::size_t count) {
  return count * shape.element <= shape.slot;
}

// True if an operation does it all.
bool goes_at_once(const SharedShape& shape) {
  return fits_slot(shape, exposed(shape)) || (shape.readable && has_parts(shape));
}

std::size_t line_elements(std::size_t element_bytes) {
  return kCacheLine % element_bytes == 0 ? kCacheLine / element_bytes : 1;
}

// The elements of a vector that an operation takes if it does not go at once: as many as fit a
// slot, so that the next piece begins at a cache line again.
std::size_t piece_length(const SharedShape& shape) {
  const std::size_t room = shape.slot / shape.element;
  const std::size_t line = line_elements(shape.element);
  return room >= line ? room / line * line : room;
}

std::size_t quotient_up(std::size_t dividend, std::size_t divisor) {
  return (dividend + divisor - 1) / divisor;
}

std::size_t part_of(std::size_t count, std::size_t round, std::size_t length) {
  const std::size_t begin = round * length;
  return begin >= count ? 0 : std::min(length, count - begin);
}

// How a vector is cut where every operation has a piece of every part: the pieces are as long as
// their parts are, and lie in a slot one behind the other.
class Pieces {
 public:
  explicit Pieces(const SharedShape& shape) : parts_(shape.parts) {
    const bool at_once = goes_at_once(shape);
    const std::size_t unit = at_once ? 1 : line_elements(shape.element);
    operations_ = at_once ? 1 : operations_needed(shape, unit);
    if (operations_ > 0) cut(unit);
  }

  /// 0: not even twice the least pieces fit, so that there would be a great many operations.
  std::size_t operations() const { return operations_; }
  std::size_t count(int part, std::size_t operation) const {
    return part_of(parts_.count(part), operation, lengths_[static_cast<std::size_t>(part)]);
  }
  /// Where in its part a piece begins.
  std::size_t begin(int part, std::size_t operation) const {
    return std::min(parts_.count(part), operation * lengths_[static_cast<std::size_t>(part)]);
  }
  std::size_t from(int part, std::size_t operation) const {
    return parts_.offset(part) + begin(part, operation);
  }
  std::size_t slot(int part) const { return slots_[static_cast<std::size_t>(part)]; }

 private:
  // Every piece may be nearly a unit longer than its share.
  static std::size_t operations_needed(const SharedShape& shape, std::size_t unit) {
    const std::size_t room = shape.slot / shape.element;
    const std::size_t rounding = static_cast<std::size_t>(shape.members) * unit;
    return room >= 2 * rounding ? quotient_up(whole(shape), room - rounding) : 0;
  }

  void cut(std::size_t unit) {
    std::size_t next = 0;
    for (int part = 0; part < parts_.parts(); ++part) {
      const std::size_t even = quotient_up(parts_.count(part), operations_);
      lengths_.push_back(quotient_up(even, unit) * unit);
      slots_.push_back(next);
      next += lengths_.back();
    }
  }

  const Partition& parts_;
  std::size_t operations_ = 0;
  std::vector<std::size_t> lengths_;  // by part
  std::vector<std::size_t> slots_;
};

// The last two steps: says that this member has read what it needs, and waits for those who read
// its own.
void release(Builder& builder, std::uint32_t stage, bool reads, bool is_read, int reader = -1) {
  if (reads) {
    SharedStep& done = builder.step(Wait::kNobody, 0);
    done.announce = stage;
    done.announce_only_in_place = true;
  }
  if (is_read) builder.step(Wait::kReaders, stage, reader);
}

// The first step of who only reads: says what it was called for.
void expose_nothing(Builder& builder) {
  builder.step(Wait::kNobody, 0).announce = kExposed;
}

// The first step: exposes [from, from + count) of the input, which begins a slot.
void expose(Builder& builder, std::size_t from, std::size_t count) {
  builder.step(Wait::kNobody, 0).announce = kExposed;
  builder.act({.kind = Kind::kExpose, .from = from, .count = count});
}

// The same without `own`, which nobody but this member reads.
void expose_but(Builder& builder, std::size_t from, std::size_t count, Slice own) {
  builder.step(Wait::kNobody, 0).announce = kExposed;
  const std::size_t behind = own.offset + own.count;
  builder.act({.kind = Kind::kExpose, .from = from, .count = own.offset - from});
  builder.act({.kind = Kind::kExpose,
               .from = behind,
               .slot = behind - from,
               .count = from + count - behind});
}

// The same for a piece of every part but this member's.
void expose_pieces(Builder& builder, const SharedShape& shape, const Pieces& pieces,
                   std::size_t operation) {
  builder.step(Wait::kNobody, 0).announce = kExposed;
  for (int part = 0; part < shape.members; ++part) {
    if (part == shape.member) continue;
    builder.act({.kind = Kind::kExpose,
                 .from = pieces.from(part, operation),
                 .slot = pieces.slot(part),
                 .count = pieces.count(part, operation)});
  }
}

bool is_root(const SharedShape& shape) {
  return shape.member == shape.root;
}

// One operation of a direct all_reduce or reduce, on [base, base + count), in rounds of `length`
// elements of every slice. Only after the last one may the caller touch what others read in place.
void direct_rounds(Builder& builder, const SharedShape& shape, std::size_t base, std::size_t count,
                   std::size_t length, bool last) {
  const Partition slices = aligned_partition(shape.members, count, shape.element);
  const std::size_t rounds = std::max<std::size_t>(1, quotient_up(slices.longest(), length));
  const Slice own{Region::kInput, base + slices.offset(shape.member), slices.count(shape.member)};
  const bool collects = shape.kind == CollectiveKind::kAllReduce || is_root(shape);
  expose_but(builder, base, count, own);
  const auto reduce = [&](std::size_t round) {
    const std::size_t at = own.offset + round * length;
    const std::size_t size = part_of(own.count, round, length);
    builder.step(round == 0 ? Wait::kEverybody : Wait::kNobody, kExposed).announce =
        kExposed + 1 + static_cast<std::uint32_t>(round);
    builder.act(
        {.kind = Kind::kReduceExposed, .from = at, .slot = at - base, .into = at, .count = size});
  };
  const auto collect = [&](std::size_t round) {
    builder.step(Wait::kEverybody, kExposed + 1 + static_cast<std::uint32_t>(round));
    // Beginning with the neighbour, so that not all read from the same one at the same time.
    for (int distance = 1; distance < shape.members; ++distance) {
      const int from = (shape.member + distance) % shape.members;
      const std::size_t at = slices.offset(from) + round * length;
      builder.act({.kind = Kind::kCollect,
                   .member = from,
                   .from = base + at,
                   .slot = at,
                   .into = base + at,
                   .count = part_of(slices.count(from), round, length)});
    }
  };
  // A round ahead, so that nobody waits for the slowest in every round.
  reduce(0);
  for (std::size_t round = 1; round < rounds; ++round) {
    reduce(round);
    if (collects) collect(round - 1);
  }
  if (collects) collect(rounds - 1);
  if (last) release(builder, kExposed + 1 + static_cast<std::uint32_t>(rounds), true, true);
}

// Everybody reduces a slice; everybody, or the root, collects them.
void direct(Builder& builder, const SharedShape& shape) {
  const std::size_t count = whole(shape);
  if (goes_at_once(shape)) {
    const std::size_t length = std::max<std::size_t>(1, kRoundBytes / shape.element);
    return direct_rounds(builder, shape, 0, count, length, true);
  }
  const std::size_t chunk = piece_length(shape);
  for (std::size_t base = 0; base < count; base += chunk) {
    builder.next_operation();
    const std::size_t size = std::min(chunk, count - base);
    direct_rounds(builder, shape, base, size, chunk, base + size == count);
  }
}

void all_reduce(Builder& builder, const SharedShape& shape) {
  if (shape.algorithm != Algorithm::kOneShot) return direct(builder, shape);
  expose(builder, 0, whole(shape));
  builder.step(Wait::kEverybody, kExposed);
  builder.act({.kind = Kind::kReduce, .count = whole(shape)});
}

void reduce(Builder& builder, const SharedShape& shape) {
  if (shape.algorithm != Algorithm::kOneShot) return direct(builder, shape);
  if (!is_root(shape)) return expose(builder, 0, whole(shape));
  expose_nothing(builder);
  builder.step(Wait::kEverybody, kExposed);
  builder.act({.kind = Kind::kReduce, .count = whole(shape)});
}

void broadcast(Builder& builder, const SharedShape& shape) {
  const std::size_t count = whole(shape);
  const std::size_t chunk =
      goes_at_once(shape) ? std::max<std::size_t>(1, count) : piece_length(shape);
  for (std::size_t base = 0; base == 0 || base < count; base += chunk) {
    builder.next_operation();
    const std::size_t size = std::min(chunk, count - base);
    if (is_root(shape)) {
      expose(builder, base, size);
    } else {
      expose_nothing(builder);
      builder.step(Wait::kMember, kExposed, shape.root);
      builder.act(
          {.kind = Kind::kCopy, .member = shape.root, .from = base, .into = base, .count = size});
    }
  }
  release(builder, kExposed + 1, !is_root(shape), is_root(shape));
}

// Every member reads part `member` of everybody's input (reduced, or one after the other).
void reduce_scatter(Builder& builder, const SharedShape& shape) {
  const Pieces pieces(shape);
  for (std::size_t operation = 0; operation < pieces.operations(); ++operation) {
    builder.next_operation();
    expose_pieces(builder, shape, pieces, operation);
    builder.step(Wait::kEverybody, kExposed);
    builder.act({.kind = Kind::kReduce,
                 .from = pieces.from(shape.member, operation),
                 .slot = pieces.slot(shape.member),
                 .into = pieces.begin(shape.member, operation),
                 .count = pieces.count(shape.member, operation)});
  }
  release(builder, kExposed + 1, true, true);
}

// Own data while the others come, then theirs, beginning with the neighbour's, so that not all read
// from the same one at the same time.
template <typename Copy>
void copy_from_all(Builder& builder, const SharedShape& shape, const Copy& copy) {
  builder.step(Wait::kNobody, 0);
  copy(shape.member);
  builder.step(Wait::kEverybody, kExposed);
  for (int distance = 1; distance < shape.members; ++distance) {
    copy((shape.member + distance) % shape.members);
  }
}

void all_to_all(Builder& builder, const SharedShape& shape) {
  const Pieces pieces(shape);
  for (std::size_t operation = 0; operation < pieces.operations(); ++operation) {
    builder.next_operation();
    const auto copy = [&](int from) {
      builder.act({.kind = Kind::kCopy,
                   .member = from,
                   .from = pieces.from(shape.member, operation),
                   .slot = pieces.slot(shape.member),
                   .into = shape.parts.offset(from) + pieces.begin(shape.member, operation),
                   .count = pieces.count(shape.member, operation)});
    };
    expose_pieces(builder, shape, pieces, operation);
    copy_from_all(builder, shape, copy);
  }
  release(builder, kExposed + 1, true, true);
}

// Everybody's part to the root, or to everybody.
void gather(Builder& builder, const SharedShape& shape) {
  const bool all = shape.kind == CollectiveKind::kAllGather;
  const bool reads = all || is_root(shape);
  const std::size_t longest = shape.parts.longest();
  const std::size_t chunk =
      goes_at_once(shape) ? std::max<std::size_t>(1, longest) : piece_length(shape);
  const std::size_t operations = std::max<std::size_t>(1, quotient_up(longest, chunk));
  for (std::size_t operation = 0; operation < operations; ++operation) {
    const std::size_t base = operation * chunk;
    builder.next_operation();
    const auto copy = [&](int from) {
      builder.act({.kind = Kind::kCopy,
                   .member = from,
                   .from = base,
                   .into = shape.parts.offset(from) + base,
                   .count = part_of(shape.parts.count(from), operation, chunk)});
    };
    if (all || !is_root(shape)) {
      expose(builder, base, part_of(shape.parts.count(shape.member), operation, chunk));
    } else {
      expose_nothing(builder);
    }
    if (!reads) continue;
    copy_from_all(builder, shape, copy);
  }
  release(builder, kExposed + 1, reads, all || !is_root(shape), all ? -1 : shape.root);
}

void scatter(Builder& builder, const SharedShape& shape) {
  const Pieces pieces(shape);
  for (std::size_t operation = 0; operation < pieces.operations(); ++operation) {
    builder.next_operation();
    if (is_root(shape)) {
      expose_pieces(builder, shape, pieces, operation);
      builder.step(Wait::kNobody, 0);
    } else {
      expose_nothing(builder);
      builder.step(Wait::kMember, kExposed, shape.root);
    }
    builder.act({.kind = Kind::kCopy,
                 .member = shape.root,
                 .from = pieces.from(shape.member, operation),
                 .slot = pieces.slot(shape.member),
                 .into = pieces.begin(shape.member, operation),
                 .count = pieces.count(shape.member, operation)});
  }
  release(builder, kExposed + 1, !is_root(shape), is_root(shape));
}

}  // namespace

Partition aligned_partition(int parts, std::size_t count, std::size_t element_bytes) {
  const std::size_t unit = line_elements(element_bytes);
  const Partition lines = Partition::even(parts, (count + unit - 1) / unit);
  std::vector<std::size_t> counts(static_cast<std::size_t>(parts));
  for (int part = 0; part < parts; ++part) {
    const std::size_t begin = std::min(count, lines.offset(part) * unit);
    const std::size_t end = std::min(count, lines.offset(part + 1) * unit);
    counts[static_cast<std::size_t>(part)] = end - begin;
  }
  return Partition::of(counts);
}

bool has_shared_plan(const SharedShape& shape) {
  if (shape.algorithm == Algorithm::kOneShot) return fits_slot(shape, whole(shape));
  if (has_parts(shape)) return Pieces(shape).operations() > 0;
  return goes_at_once(shape) || shape.element <= shape.slot;
}

SharedPlan shared_plan(const SharedShape& shape) {
  Builder builder;
  switch (shape.kind) {
    case CollectiveKind::kBarrier:
      builder.step(Wait::kNobody, 0).announce = kExposed;
      builder.step(Wait::kEverybody, kExposed);
      break;
    case CollectiveKind::kBroadcast:
      broadcast(builder, shape);
      break;
    case CollectiveKind::kScatter:
      scatter(builder, shape);
      break;
    case CollectiveKind::kGather:
    case CollectiveKind::kAllGather:
      gather(builder, shape);
      break;
    case CollectiveKind::kReduce:
      reduce(builder, shape);
      break;
    case CollectiveKind::kReduceScatter:
      reduce_scatter(builder, shape);
      break;
    case CollectiveKind::kAllReduce:
      all_reduce(builder, shape);
      break;
    case CollectiveKind::kAllToAll:
      all_to_all(builder, shape);
      break;
  }
  return builder.finish();
}

}  // namespace dlaunch
