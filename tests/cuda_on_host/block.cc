#include "tests/cuda_on_host/block.h"

#include <algorithm>
#include <string>
#include <string_view>

namespace dlaunch::cuda_on_host {
namespace {

constexpr std::size_t kLanes = 32;

std::string describe(const Dimensions& at) {
  return "(" + std::to_string(at.x) + ", " + std::to_string(at.y) + ", " + std::to_string(at.z) +
         ")";
}

std::string describe(const Place& where) {
  return std::string(where.file) + ":" + std::to_string(where.line);
}

bool same(const Place& a, const Place& b) {
  return a.line == b.line && std::string_view(a.file) == b.file;
}

}  // namespace

void Block::run(Dimensions size, const std::function<void()>& kernel) {
  size_ = size;
  kernel_ = &kernel;
  threads_.assign(size.count(), {});
  order_ = Order(threads_.size(), random_);
  started_ = 0;
  ended_ = 0;
  has_met_ = false;
  while (started_ < threads_.size()) {
    if (idle_.empty()) {
      fibers_.push_back(std::make_unique<Fiber>([this] { start_threads(); }));
      idle_.push_back(fibers_.back().get());
    }
    idle_.back()->resume();
  }
  while (ended_ < threads_.size()) {
    let_go_on();
    run_ready_threads();
  }
}

// The body of all fibers: starts threads as long as there are new ones. When one of them waits, the
// next fiber goes on with that.
void Block::start_threads() {
  Fiber* const self = idle_.back();
  for (;;) {
    idle_.pop_back();
    while (started_ < threads_.size()) {
      ++started_;
      become(order_.next());
      threads_[running_].fiber = self;
      (*kernel_)();
      threads_[running_].state = State::kEnded;
      ++ended_;
    }
    idle_.push_back(self);
    self->pause();
  }
}

void Block::run_ready_threads() {
  Order order(threads_.size(), random_);
  for (std::size_t i = 0; i < threads_.size(); ++i) {
    const std::uint64_t number = order.next();
    if (threads_[number].state != State::kReady) continue;
    become(number);
    threads_[number].fiber->resume();
  }
}

void Block::become(std::uint64_t number) {
  running_ = number;
  current.thread_index = size_.at(number);
}

void Block::pause(State state, Place where) {
  has_met_ = true;
  Thread& self = threads_[running_];
  self.state = state;
  self.where = where;
  self.fiber->pause();
}

void Block::wait(Place where) {
  pause(State::kAtBarrier, where);
}

std::uint64_t Block::exchange(unsigned mask, std::uint64_t word, int distance, Place where) {
  Thread& self = threads_[running_];
  self.mask = mask;
  self.word = word;
  self.distance = distance;
  pause(State::kAtExchange, where);
  return self.word;
}

// All threads that have not ended wait now. An exchange needs nobody but its warp, so it is first.
void Block::let_go_on() {
  if (!exchange_in_warps()) pass_barrier();
}

void Block::pass_barrier() {
  const auto waits = [](const Thread& thread) { return thread.state != State::kEnded; };
  const auto first = std::ranges::find_if(threads_, waits);
  for (auto other = first; other != threads_.end(); ++other) {
    if (!waits(*other)) continue;
    if (!same(other->where, first->where))
      fail(static_cast<std::size_t>(other - threads_.begin()), "waits at another barrier than",
           static_cast<std::size_t>(first - threads_.begin()));
    other->state = State::kReady;
  }
}

// Whether there was any.
bool Block::exchange_in_warps() {
  bool any = false;
  std::vector<std::uint64_t> words(kLanes);
  for (std::size_t first = 0; first < threads_.size(); first += kLanes) {
    const std::size_t end = std::min(first + kLanes, threads_.size());
    for (std::size_t i = first; i < end; ++i) {
      words[i - first] = threads_[i].word;
      if (threads_[i].state == State::kAtExchange) exchange_in(first, i);
    }
    for (std::size_t i = first; i < end; ++i) {
      Thread& thread = threads_[i];
      if (thread.state != State::kAtExchange) continue;
      thread.word = words[(i - first) ^ static_cast<std::size_t>(thread.distance)];
      thread.state = State::kReady;
      any = true;
    }
  }
  return any;
}

// Checks the exchange that the thread waits for.
void Block::exchange_in(std::size_t first_lane, std::size_t lane) {
  const Thread& self = threads_[lane];
  const auto source = (lane - first_lane) ^ static_cast<std::size_t>(self.distance);
  if (source >= kLanes || (self.mask >> source & 1U) == 0)
    fail(lane, "wants a value that its mask does not name from", first_lane + source);
  for (std::size_t other = 0; other < kLanes; ++other) {
    if ((self.mask >> other & 1U) == 0) continue;
    const std::size_t number = first_lane + other;
    if (number >= threads_.size() || threads_[number].state != State::kAtExchange ||
        threads_[number].mask != self.mask || !same(threads_[number].where, self.where))
      fail(lane, "exchanges values in its warp without", number);
  }
}

void Block::fail(std::size_t number, const char* what, std::size_t other) {
  const Thread& thread = threads_[number];
  std::string text = describe(thread.where) + ": thread " + describe(size_.at(number)) +
                     " of block " + describe(current.block_index) + " " + what + " thread " +
                     describe(size_.at(other));
  if (other >= threads_.size()) {
    text += ", which is not there";
  } else if (threads_[other].state == State::kEnded) {
    text += ", which has ended";
  } else {
    text += ", which is at " + describe(threads_[other].where);
  }
  idle_.clear();
  fibers_.clear();  // threads in the middle of the kernel
  throw KernelFault(text);
}

}  // namespace dlaunch::cuda_on_host
