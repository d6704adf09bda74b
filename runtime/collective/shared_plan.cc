#include "runtime/collective/shared_plan.h"

#include <algorithm>

namespace dlaunch {
namespace {

using Action = SharedAction;
using Kind = SharedAction::Kind;
using Wait = SharedStep::Wait;

constexpr std::size_t kCacheLine = 64;
// Of a vector that is read in place, so much per member is reduced and then collected.
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
    added.base = base_;
    added.first_action = static_cast<std::uint32_t>(plan_.actions.size());
    return added;
  }

  void act(const Action& action) {
    if (action.count > 0) plan_.actions.push_back(action);
  }

  // All steps from here on belong to the next operation, whose slots hold what begins at `base`.
  void next_operation(std::size_t base) {
    if (!plan_.steps.empty()) ++operation_;
    base_ = base;
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
  std::size_t base_ = 0;
};

// The first step: exposes [from, from + count) of the input.
void expose(Builder& builder, std::size_t from, std::size_t count) {
  builder.step(Wait::kNobody, 0).announce = kExposed;
  builder.act({.kind = Kind::kExpose, .from = from, .into = from, .count = count});
}

// The same without `own`, which nobody but this member reads.
void expose_but(Builder& builder, std::size_t from, std::size_t count, Slice own) {
  builder.step(Wait::kNobody, 0).announce = kExposed;
  const std::size_t behind = own.offset + own.count;
  builder.act({.kind = Kind::kExpose, .from = from, .into = from, .count = own.offset - from});
  builder.act(
      {.kind = Kind::kExpose, .from = behind, .into = behind, .count = from + count - behind});
}

// The last two: says that this member has read what it needs, and waits for those who read its own.
void release(Builder& builder, std::uint32_t stage, bool reads, bool is_read, int reader = -1) {
  if (reads) {
    SharedStep& done = builder.step(Wait::kNobody, 0);
    done.announce = stage;
    done.announce_only_in_place = true;
  }
  if (is_read) builder.step(Wait::kReaders, stage, reader);
}

std::size_t part_of(std::size_t count, std::size_t round, std::size_t length) {
  const std::size_t begin = round * length;
  return begin >= count ? 0 : std::min(length, count - begin);
}

// One operation of a direct all_reduce, on [base, base + count), in rounds of `length` elements of
// every slice. Only after the last one may the caller touch what others read in place.
void direct_rounds(Builder& builder, const SharedShape& shape, std::size_t base, std::size_t count,
                   std::size_t length, bool last) {
  const Partition slices = aligned_partition(shape.members, count, shape.element);
  const std::size_t rounds = std::max<std::size_t>(1, (slices.longest() + length - 1) / length);
  const Slice own{Region::kInput, base + slices.offset(shape.member), slices.count(shape.member)};
  expose_but(builder, base, count, own);
  const auto reduce = [&](std::size_t round) {
    const std::size_t at = own.offset + round * length;
    const std::size_t size = part_of(own.count, round, length);
    builder.step(round == 0 ? Wait::kEverybody : Wait::kNobody, kExposed).announce =
        kExposed + 1 + static_cast<std::uint32_t>(round);
    builder.act({.kind = Kind::kReduceExposed, .from = at, .into = at, .count = size});
  };
  const auto collect = [&](std::size_t round) {
    builder.step(Wait::kEverybody, kExposed + 1 + static_cast<std::uint32_t>(round));
    // Beginning with the neighbour, so that not all read from the same one at the same time.
    for (int distance = 1; distance < shape.members; ++distance) {
      const int from = (shape.member + distance) % shape.members;
      const std::size_t at = base + slices.offset(from) + round * length;
      builder.act({.kind = Kind::kCollect,
                   .member = from,
                   .from = at,
                   .into = at,
                   .count = part_of(slices.count(from), round, length)});
    }
  };
  // A round ahead, so that nobody waits for the slowest in every round.
  reduce(0);
  for (std::size_t round = 1; round < rounds; ++round) {
    reduce(round);
    collect(round - 1);
  }
  collect(rounds - 1);
  if (last) release(builder, kExposed + 1 + static_cast<std::uint32_t>(rounds), true, true);
}

std::size_t whole(const SharedShape& shape) {
  return shape.parts.total();
}

bool fits_slot(const SharedShape& shape, std::size_t count) {
  return count * shape.element <= shape.slot;
}

void all_reduce(Builder& builder, const SharedShape& shape) {
  const std::size_t count = whole(shape);
  if (shape.algorithm == Algorithm::kOneShot) {
    expose(builder, 0, count);
    builder.step(Wait::kEverybody, kExposed);
    builder.act({.kind = Kind::kReduce, .count = count});
    return;
  }
  const std::size_t length = std::max<std::size_t>(1, kRoundBytes / shape.element);
  if (fits_slot(shape, count) || shape.readable) {
    return direct_rounds(builder, shape, 0, count, length, true);
  }
  const std::size_t chunk = shape.slot / shape.element;
  for (std::size_t base = 0; base < count; base += chunk) {
    builder.next_operation(base);
    const std::size_t size = std::min(chunk, count - base);
    direct_rounds(builder, shape, base, size, chunk, base + size == count);
  }
}

void broadcast(Builder& builder, const SharedShape& shape) {
  const std::size_t count = whole(shape);
  const std::size_t chunk = fits_slot(shape, count) || shape.readable
                                ? std::max<std::size_t>(1, count)
                                : shape.slot / shape.element;
  const bool is_root = shape.member == shape.root;
  for (std::size_t base = 0; base == 0 || base < count; base += chunk) {
    builder.next_operation(base);
    const std::size_t size = std::min(chunk, count - base);
    if (is_root) {
      expose(builder, base, size);
    } else {
      // Also who reads only says what it was called for.
      builder.step(Wait::kNobody, 0).announce = kExposed;
      builder.step(Wait::kMember, kExposed, shape.root);
      builder.act(
          {.kind = Kind::kCopy, .member = shape.root, .from = base, .into = base, .count = size});
    }
    release(builder, kExposed + 1, !is_root, is_root);
  }
}

// Every member reads part `member` of everybody's input (reduced, or one after the other).
void reduce_scatter(Builder& builder, const SharedShape& shape) {
  const Slice own = shape.parts.slice(Region::kInput, shape.member);
  expose_but(builder, 0, whole(shape), own);
  builder.step(Wait::kEverybody, kExposed);
  builder.act({.kind = Kind::kReduce, .from = own.offset, .into = 0, .count = own.count});
  release(builder, kExposed + 1, true, true);
}

void all_to_all(Builder& builder, const SharedShape& shape) {
  expose(builder, 0, whole(shape));
  builder.step(Wait::kEverybody, kExposed);
  for (int distance = 0; distance < shape.members; ++distance) {
    const int from = (shape.member + distance) % shape.members;
    builder.act({.kind = Kind::kCopy,
                 .member = from,
                 .from = shape.parts.offset(shape.member),
                 .into = shape.parts.offset(from),
                 .count = shape.parts.count(shape.member)});
  }
  release(builder, kExposed + 1, true, true);
}

void all_gather(Builder& builder, const SharedShape& shape) {
  expose(builder, 0, shape.parts.count(shape.member));
  builder.step(Wait::kEverybody, kExposed);
  for (int distance = 0; distance < shape.members; ++distance) {
    const int from = (shape.member + distance) % shape.members;
    builder.act({.kind = Kind::kCopy,
                 .member = from,
                 .into = shape.parts.offset(from),
                 .count = shape.parts.count(from)});
  }
  release(builder, kExposed + 1, true, true);
}

void gather(Builder& builder, const SharedShape& shape) {
  expose(builder, 0, shape.parts.count(shape.member));
  const bool is_root = shape.member == shape.root;
  if (is_root) {
    builder.step(Wait::kEverybody, kExposed);
    for (int from = 0; from < shape.members; ++from) {
      builder.act({.kind = Kind::kCopy,
                   .member = from,
                   .into = shape.parts.offset(from),
                   .count = shape.parts.count(from)});
    }
  }
  release(builder, kExposed + 1, is_root, !is_root, shape.root);
}

void scatter(Builder& builder, const SharedShape& shape) {
  const bool is_root = shape.member == shape.root;
  if (is_root) {
    expose(builder, 0, whole(shape));
    builder.step(Wait::kNobody, 0);
  } else {
    builder.step(Wait::kNobody, 0).announce = kExposed;
    builder.step(Wait::kMember, kExposed, shape.root);
  }
  builder.act({.kind = Kind::kCopy,
               .member = shape.root,
               .from = shape.parts.offset(shape.member),
               .into = 0,
               .count = shape.parts.count(shape.member)});
  release(builder, kExposed + 1, !is_root, is_root);
}

// Everybody reduces a slice, the root collects them.
void reduce(Builder& builder, const SharedShape& shape) {
  const Partition slices = aligned_partition(shape.members, whole(shape), shape.element);
  const Slice own = slices.slice(Region::kInput, shape.member);
  const bool is_root = shape.member == shape.root;
  expose_but(builder, 0, whole(shape), own);
  builder.step(Wait::kEverybody, kExposed).announce = kExposed + 1;
  builder.act(
      {.kind = Kind::kReduceExposed, .from = own.offset, .into = own.offset, .count = own.count});
  if (is_root) {
    builder.step(Wait::kEverybody, kExposed + 1);
    for (int from = 0; from < shape.members; ++from) {
      if (from == shape.member) continue;
      builder.act({.kind = Kind::kCollect,
                   .member = from,
                   .from = slices.offset(from),
                   .into = slices.offset(from),
                   .count = slices.count(from)});
    }
  }
  release(builder, kExposed + 2, true, true);
}

}  // namespace

Partition aligned_partition(int parts, std::size_t count, std::size_t element_bytes) {
  const std::size_t unit = kCacheLine % element_bytes == 0 ? kCacheLine / element_bytes : 1;
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
  const std::size_t count =
      shape.kind == CollectiveKind::kAllGather || shape.kind == CollectiveKind::kGather
          ? shape.parts.longest()
          : shape.parts.total();
  if (shape.kind == CollectiveKind::kAllReduce && shape.algorithm == Algorithm::kOneShot) {
    return fits_slot(shape, count);
  }
  return fits_slot(shape, count) || shape.readable || shape.kind == CollectiveKind::kAllReduce ||
         shape.kind == CollectiveKind::kBroadcast;
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
      gather(builder, shape);
      break;
    case CollectiveKind::kAllGather:
      all_gather(builder, shape);
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
