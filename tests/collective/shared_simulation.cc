#include "tests/collective/shared_simulation.h"

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <utility>

namespace dlaunch::testing {
namespace {

using Kind = SharedAction::Kind;
using Wait = SharedStep::Wait;
using Clocks = std::vector<std::uint64_t>;  // by member

// What an element holds.
constexpr std::uint64_t kNothing = 0;
std::uint64_t input_bits(int member, std::size_t index) {
  return (static_cast<std::uint64_t>(member) + 1) << 32U | index;
}
std::uint64_t reduced(std::size_t index) {  // all members', in their order
  return std::uint64_t{1} << 63U | index;
}

struct Element {
  std::uint64_t value = kNothing;
  int writer = -1;
  std::uint64_t written = 0;  // by the writer's clock
  Clocks read;                // by the readers' clocks
};

struct Memory {
  Memory(std::string what, std::size_t count, int members) : name(std::move(what)) {
    elements.resize(count);
    for (Element& element : elements) element.read.resize(static_cast<std::size_t>(members));
  }
  std::string name;
  std::vector<Element> elements;
};

// A memory as if element 0 of the vector were at `origin`, which may be in front of it.
struct View {
  std::shared_ptr<Memory> memory;
  std::ptrdiff_t origin = 0;
};

class Member {
 public:
  int index = 0;
  Clocks clocks;

  void write(const View& view, std::size_t at, std::uint64_t value) const {
    Element& element = find(view, at);
    after_write(element, view, at);
    for (std::size_t reader = 0; reader < clocks.size(); ++reader) {
      if (element.read[reader] > clocks[reader]) {
        fail("writes over what member " + std::to_string(reader) + " may still read", view, at);
      }
    }
    element.value = value;
    element.writer = index;
    element.written = clocks[static_cast<std::size_t>(index)];
  }

  std::uint64_t read(const View& view, std::size_t at) const {
    Element& element = find(view, at);
    after_write(element, view, at);
    const auto self = static_cast<std::size_t>(index);
    element.read[self] = clocks[self];
    return element.value;
  }

  [[noreturn]] void fail(const std::string& what, const View& view, std::size_t at) const {
    throw std::runtime_error("member " + std::to_string(index) + " " + what + ": " +
                             view.memory->name + ", element " + std::to_string(at));
  }

 private:
  Element& find(const View& view, std::size_t at) const {
    const std::ptrdiff_t place = view.origin + static_cast<std::ptrdiff_t>(at);
    if (place < 0 || place >= std::ssize(view.memory->elements)) fail("goes beyond", view, at);
    return view.memory->elements[static_cast<std::size_t>(place)];
  }
  void after_write(const Element& element, const View& view, std::size_t at) const {
    if (element.writer < 0) return;
    if (element.written > clocks[static_cast<std::size_t>(element.writer)]) {
      fail("does not know of a write by member " + std::to_string(element.writer), view, at);
    }
  }
};

struct Announced {
  std::uint64_t operation = 0;
  std::uint32_t stage = 0;
  Clocks clocks;
};

class Simulation {
 public:
  Simulation(const std::vector<SimulatedCall>& calls, int members) : calls_(calls) {
    for (int i = 0; i < members; ++i) {
      Runner& runner = runners_.emplace_back();
      runner.member.index = i;
      runner.member.clocks.resize(static_cast<std::size_t>(members));
      runner.member.clocks[static_cast<std::size_t>(i)] = 1;
      for (int parity = 0; parity < 2; ++parity) {
        runner.slots.push_back(std::make_shared<Memory>("slot of member " + std::to_string(i),
                                                        longest_slot(), members));
      }
    }
    for (Runner& runner : runners_) begin_call(runner);
  }

  void run(std::mt19937_64& random) {
    std::vector<int> able(runners_.size());
    for (std::size_t i = 0; i < able.size(); ++i) able[i] = static_cast<int>(i);
    while (std::ranges::any_of(runners_, [](const Runner& each) { return !each.done; })) {
      std::ranges::shuffle(able, random);
      const auto moved = std::ranges::find_if(able, [&](int i) { return advance(runner(i)); });
      if (moved == able.end()) throw std::runtime_error("all wait for each other");
      // Some go on for long while the others stand still.
      for (std::uint64_t more = random() % 4 == 0 ? 50 : random() % 3; more > 0; --more) {
        if (!advance(runner(*moved))) break;
      }
    }
  }

 private:
  // What a member works on in one call.
  struct Buffers {
    View input;
    View output;
    View late;  // written instead of the output, if others read there
    View result;
    bool in_place = false;
  };
  struct Runner {
    Member member;
    std::vector<std::shared_ptr<Memory>> slots;
    std::vector<Announced> announced;
    std::vector<Buffers> buffers;  // by call; the last one's is the current one
    bool done = false;
    SharedPlan plan;
    std::size_t step = 0;
    std::uint64_t first = 1;
    std::uint64_t entered = 0;
    bool any_in_place = false;

    std::size_t call() const { return buffers.size() - 1; }
    Buffers& own() { return buffers.back(); }
  };

  Runner& runner(int index) { return runners_[static_cast<std::size_t>(index)]; }
  std::size_t members() const { return runners_.size(); }
  std::size_t longest_slot() const {
    std::size_t longest = 0;
    for (const SimulatedCall& call : calls_) {
      longest = std::max(longest, call.shape.slot / call.shape.element);
    }
    return longest;
  }

  static bool exposes_part(CollectiveKind kind) {
    return kind == CollectiveKind::kGather || kind == CollectiveKind::kAllGather;
  }
  static bool gets_part(CollectiveKind kind) {
    return kind == CollectiveKind::kScatter || kind == CollectiveKind::kReduceScatter;
  }
  View new_memory(const std::string& name, const Runner& owner, std::size_t count) const {
    return {std::make_shared<Memory>(name + " of member " + std::to_string(owner.member.index) +
                                         " in call " + std::to_string(owner.call()),
                                     count, static_cast<int>(members()))};
  }

  void begin_call(Runner& runner) {
    if (runner.buffers.size() == calls_.size()) {
      runner.done = true;
      return;
    }
    const SimulatedCall& call = calls_[runner.buffers.size()];
    runner.buffers.emplace_back();
    SharedShape shape = call.shape;
    shape.member = runner.member.index;
    shape.members = static_cast<int>(members());
    runner.plan = shared_plan(shape);
    runner.step = 0;
    runner.own().in_place = call.in_place[static_cast<std::size_t>(shape.member)];
    make_buffers(runner, call, shape);
  }

  static bool is_root(const Runner& runner, const SharedShape& shape) {
    return runner.member.index == shape.root;
  }

  void make_buffers(Runner& runner, const SimulatedCall& call, const SharedShape& shape) {
    const std::size_t whole = shape.parts.total();
    const std::size_t part = shape.parts.count(runner.member.index);
    const auto offset = static_cast<std::ptrdiff_t>(shape.parts.offset(runner.member.index));
    const bool aliased = call.aliased || shape.kind == CollectiveKind::kBroadcast;
    Buffers& own = runner.own();
    if (exposes_part(shape.kind)) {
      own.output = new_memory("output", runner, whole);
      own.input = aliased ? View{own.output.memory, offset} : new_memory("input", runner, part);
    } else {
      own.input = new_memory("input", runner, whole);
      own.output =
          aliased ? own.input : new_memory("output", runner, gets_part(shape.kind) ? part : whole);
      if (aliased && shape.kind == CollectiveKind::kScatter) own.output.origin = offset;
      if (aliased && shape.kind == CollectiveKind::kReduceScatter && offset != 0) {
        own.late = new_memory("late output", runner, part);
      }
    }
    const std::size_t exposed = exposes_part(shape.kind) ? part : whole;
    for (std::size_t i = 0; i < exposed; ++i) {
      runner.member.write(own.input, i, input_bits(runner.member.index, i));
    }
    const bool collected_elsewhere =
        shape.kind == CollectiveKind::kReduce && !is_root(runner, shape);
    own.result = collected_elsewhere ? new_memory("result", runner, whole) : own.output;
  }

  // --- waiting

  // What a member is known to have done before the first announcement that is enough.
  const Announced* announcement(const Runner& of, std::uint64_t operation,
                                std::uint32_t stage) const {
    for (const Announced& announced : of.announced) {
      // An operation's cell is the one of all that are an even number away.
      if ((announced.operation ^ operation) % 2 != 0) continue;
      if (std::pair(announced.operation, announced.stage) >= std::pair(operation, stage)) {
        return &announced;
      }
    }
    return nullptr;
  }

  bool wait_for(Runner& waiting, int begin, int end, std::uint64_t operation, std::uint32_t stage) {
    for (int i = begin; i < end; ++i) {
      if (i != waiting.member.index && announcement(runner(i), operation, stage) == nullptr) {
        return false;
      }
    }
    for (int i = begin; i < end; ++i) {
      if (i == waiting.member.index) continue;
      const Clocks& theirs = announcement(runner(i), operation, stage)->clocks;
      for (std::size_t k = 0; k < theirs.size(); ++k) {
        waiting.member.clocks[k] = std::max(waiting.member.clocks[k], theirs[k]);
      }
    }
    return true;
  }

  bool wait_over(Runner& waiting, const SharedStep& step, std::uint64_t operation) {
    if (step.wait == Wait::kNobody) return true;
    if (step.wait == Wait::kReaders && !waiting.own().in_place) return true;
    const int begin = std::max(step.member, 0);
    const int end = step.member < 0 ? static_cast<int>(members()) : step.member + 1;
    if (!wait_for(waiting, begin, end, operation, step.stage)) return false;
    if (step.stage == kExposed) {
      for (int i = begin; i < end; ++i) {
        if (calls_[waiting.call()].in_place[static_cast<std::size_t>(i)])
          waiting.any_in_place = true;
      }
    }
    return true;
  }

  // --- a step

  bool advance(Runner& moving) {
    if (moving.done) return false;
    const SharedStep& step = moving.plan.steps[moving.step];
    const std::uint64_t operation = moving.first + step.operation;
    if (moving.entered != operation) {
      // The rule of SharedGroup.
      if (operation > 1 &&
          !wait_for(moving, 0, static_cast<int>(members()), operation - 1, kExposed)) {
        return false;
      }
      moving.entered = operation;
      moving.any_in_place = moving.own().in_place;
    }
    if (!wait_over(moving, step, operation)) return false;
    for (auto action = step.first_action; action < step.last_action; ++action) {
      act(moving, moving.plan.actions[action], operation);
    }
    if (step.announce != 0 && !(step.announce_only_in_place && !moving.any_in_place)) {
      announce(moving, operation, step.announce);
    }
    if (++moving.step == moving.plan.steps.size()) end_call(moving);
    return true;
  }

  static void announce(Runner& moving, std::uint64_t operation, std::uint32_t stage) {
    moving.announced.push_back({operation, stage, moving.member.clocks});
    ++moving.member.clocks[static_cast<std::size_t>(moving.member.index)];
  }

  static View slot(const Runner& of, std::uint64_t operation) { return {of.slots[operation % 2]}; }

  // What a member works on in the call of another one, which must have begun it.
  Buffers& buffers(Runner& of, const Runner& in_call_of) {
    if (of.buffers.size() < in_call_of.buffers.size()) {
      throw std::runtime_error("a member reads from one that has not begun");
    }
    return of.buffers[in_call_of.call()];
  }

  // A copy onto itself writes nothing.
  static bool same_place(const Buffers& own, const View& output, std::size_t from,
                         std::size_t into) {
    return own.input.memory == output.memory &&
           own.input.origin + static_cast<std::ptrdiff_t>(from) ==
               output.origin + static_cast<std::ptrdiff_t>(into);
  }

  void act(Runner& moving, const SharedAction& action, std::uint64_t operation) {
    Buffers& own = moving.own();
    const View& output = own.late.memory != nullptr ? own.late : own.output;
    for (std::size_t i = 0; i < action.count; ++i) {
      const std::size_t from = action.from + i;
      const std::size_t in_slot = action.slot + i;
      const std::size_t into = action.into + i;
      const auto input = [&](Runner& of) {
        const Buffers& theirs = buffers(of, moving);
        const bool where_it_is = &of == &moving || theirs.in_place;
        return where_it_is ? moving.member.read(theirs.input, from)
                           : moving.member.read(slot(of, operation), in_slot);
      };
      switch (action.kind) {
        case Kind::kExpose:
          if (!own.in_place) {
            moving.member.write(slot(moving, operation), in_slot, input(moving));
          }
          break;
        case Kind::kReduce:
        case Kind::kReduceExposed:
          for (Runner& each : runners_) {
            if (input(each) != input_bits(each.member.index, from)) {
              moving.member.fail("reduces the wrong element", each.own().input, from);
            }
          }
          if (action.kind == Kind::kReduce) {
            moving.member.write(output, into, reduced(from));
            break;
          }
          moving.member.write(own.result, into, reduced(from));
          if (!own.in_place) {
            moving.member.write(slot(moving, operation), in_slot, reduced(from));
          }
          break;
        case Kind::kCopy:
          if (action.member == moving.member.index && same_place(own, output, from, into)) break;
          moving.member.write(output, into, input(runner(action.member)));
          break;
        case Kind::kCollect: {
          Runner& of = runner(action.member);
          const Buffers& theirs = buffers(of, moving);
          moving.member.write(output, into,
                              theirs.in_place ? moving.member.read(theirs.result, from)
                                              : moving.member.read(slot(of, operation), in_slot));
          break;
        }
      }
    }
  }

  // --- the end of a call

  void end_call(Runner& ended) {
    const SharedShape& shape = calls_[ended.call()].shape;
    const std::size_t part = shape.parts.count(ended.member.index);
    const Buffers& own = ended.own();
    if (own.late.memory != nullptr) {
      for (std::size_t i = 0; i < part; ++i) {
        ended.member.write(own.output, i, ended.member.read(own.late, i));
      }
    }
    check_output(ended, shape);
    for (const View& view : {own.input, own.output}) {
      for (std::size_t i = 0; i < view.memory->elements.size(); ++i) {
        ended.member.write({view.memory}, i, kNothing);  // the caller's memory again
      }
    }
    ended.first += ended.plan.operations;
    begin_call(ended);
  }

  void expect(const Runner& ended, std::size_t at, std::uint64_t value) const {
    const View& output = ended.buffers.back().output;
    if (ended.member.read(output, at) != value) {
      ended.member.fail("ends with the wrong value", output, at);
    }
  }

  void check_output(const Runner& ended, const SharedShape& shape) const {
    const Partition& parts = shape.parts;
    const int self = ended.member.index;
    const bool root = self == shape.root;
    switch (shape.kind) {
      case CollectiveKind::kBarrier:
        return;
      case CollectiveKind::kBroadcast:
        for (std::size_t i = 0; i < parts.total(); ++i) expect(ended, i, input_bits(shape.root, i));
        return;
      case CollectiveKind::kScatter:
        for (std::size_t i = 0; i < parts.count(self); ++i) {
          expect(ended, i, input_bits(shape.root, parts.offset(self) + i));
        }
        return;
      case CollectiveKind::kGather:
      case CollectiveKind::kAllGather:
        if (shape.kind == CollectiveKind::kGather && !root) return;
        for (int from = 0; from < parts.parts(); ++from) {
          for (std::size_t i = 0; i < parts.count(from); ++i) {
            expect(ended, parts.offset(from) + i, input_bits(from, i));
          }
        }
        return;
      case CollectiveKind::kReduce:
      case CollectiveKind::kAllReduce:
        if (shape.kind == CollectiveKind::kReduce && !root) return;
        for (std::size_t i = 0; i < parts.total(); ++i) expect(ended, i, reduced(i));
        return;
      case CollectiveKind::kReduceScatter:
        for (std::size_t i = 0; i < parts.count(self); ++i) {
          expect(ended, i, reduced(parts.offset(self) + i));
        }
        return;
      case CollectiveKind::kAllToAll:
        for (int from = 0; from < parts.parts(); ++from) {
          for (std::size_t i = 0; i < parts.count(self); ++i) {
            expect(ended, parts.offset(from) + i, input_bits(from, parts.offset(self) + i));
          }
        }
        return;
    }
  }

  const std::vector<SimulatedCall>& calls_;
  std::vector<Runner> runners_;
};

}  // namespace

std::string simulate(const std::vector<SimulatedCall>& calls, int members,
                     std::mt19937_64& random) {
  try {
    Simulation(calls, members).run(random);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

}  // namespace dlaunch::testing
