#include "tests/device/fake_stream.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "runtime/collective/reduction.h"

namespace dlaunch::testing {
namespace {

std::uint64_t next_number() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

}  // namespace

FakeRecording::FakeRecording() : number_(next_number()) {}

std::size_t FakeRecording::add(const FakeStream& stream, Action action) {
  const std::scoped_lock lock(mutex_);
  const std::size_t place = nodes_.size();
  nodes_.push_back({std::move(action), std::exchange(next_after_[&stream], {place})});
  return place;
}

void FakeRecording::follow(const FakeStream& stream, std::size_t place) {
  const std::scoped_lock lock(mutex_);
  next_after_[&stream].push_back(place);
}

bool FakeRecording::is_straight_line() const {
  const std::scoped_lock lock(mutex_);
  return std::ranges::all_of(nodes_, [](const Node& node) { return node.after.size() <= 1; });
}

std::vector<FakeRecording::Action> FakeRecording::in_some_order() const {
  const std::scoped_lock lock(mutex_);
  std::vector<std::size_t> missing(nodes_.size());  // of what comes before
  std::vector<std::vector<std::size_t>> followers(nodes_.size());
  std::vector<std::size_t> ready;
  for (std::size_t place = 0; place < nodes_.size(); ++place) {
    missing[place] = nodes_[place].after.size();
    for (const std::size_t before : nodes_[place].after) followers[before].push_back(place);
    if (missing[place] == 0) ready.push_back(place);
  }
  std::vector<Action> actions;
  while (!ready.empty()) {
    std::swap(ready[random_() % ready.size()], ready.back());
    const std::size_t place = ready.back();
    ready.pop_back();
    actions.push_back(nodes_[place].action);
    for (const std::size_t follower : followers[place])
      if (--missing[follower] == 0) ready.push_back(follower);
  }
  return actions;
}

FakeStream::~FakeStream() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Status FakeStream::copy(void* to, const void* from, std::size_t bytes) {
  return queue([=] {
    if (bytes > 0) std::memcpy(to, from, bytes);
  });
}

Status FakeStream::reduce(ReduceOp op, DType dtype, void* into,
                          std::span<const void* const> operands, std::size_t count, int divisor) {
  return queue([=, operands = std::vector<const void*>(operands.begin(), operands.end())] {
    reduce_operands(op, dtype, into, operands, count, divisor);
  });
}

Status FakeStream::flags(std::span<const FlagAction> actions) {
  return queue([this, actions = std::vector<FlagAction>(actions.begin(), actions.end())] {
    for (const FlagAction& action : actions) {
      std::atomic_ref<std::uint32_t> flag(*action.flag);
      if (action.kind == FlagAction::Kind::kWrite) {
        flag.store(action.value, std::memory_order_release);
      } else {
        wait_until([&] {
          return context_->passes_flags && flag.load(std::memory_order_acquire) == action.value;
        });
      }
    }
  });
}

Status FakeStream::call(std::function<void()> function) {
  return queue(std::move(function));
}

Result<std::shared_ptr<DeviceEvent>> FakeStream::record() {
  if (const auto into = recorded_into(); into != nullptr) {
    const std::size_t place = into->add(*this, [] {});
    return std::shared_ptr<DeviceEvent>(std::make_shared<FakeEvent>(context_, into, place));
  }
  return std::shared_ptr<DeviceEvent>(record_now());
}

std::shared_ptr<FakeEvent> FakeStream::record_now() {
  auto event = std::make_shared<FakeEvent>(context_);
  queue_now([passed = event->passed] { passed->store(true); });
  return event;
}

Status FakeStream::wait(const DeviceEvent& event) {
  const auto& of_fakes = dynamic_cast<const FakeEvent&>(event);
  if (of_fakes.recorded) {  // this stream belongs to the recording from now on
    const auto recording = of_fakes.recording.lock();
    if (recording == nullptr || recording->ended()) {
      return Status(StatusCode::kInvalidArgument, "an event that was recorded is waited for");
    }
    recording->follow(*this, of_fakes.place);
    const std::scoped_lock lock(mutex_);
    followed_ = recording;
    return Status();
  }
  return queue([this, passed = of_fakes.passed] { wait_until([&] { return passed->load(); }); });
}

std::shared_ptr<FakeRecording> FakeStream::recorded_into() const {
  const std::scoped_lock lock(mutex_);
  auto recording = recording_ == nullptr ? followed_.lock() : recording_;
  return recording == nullptr || recording->ended() ? nullptr : recording;
}

std::uint64_t FakeStream::recording() const {
  const auto recording = recorded_into();
  return recording == nullptr ? 0 : recording->number();
}

void FakeStream::begin_capture() {
  const std::scoped_lock lock(mutex_);
  recording_ = std::make_shared<FakeRecording>();
}

std::shared_ptr<FakeRecording> FakeStream::end_capture() {
  const std::scoped_lock lock(mutex_);
  recording_->end();
  return std::move(recording_);
}

void FakeStream::replay(const FakeRecording& recording) {
  for (const Action& action : recording.in_some_order()) (void)queue(action);
}

Status FakeStream::queue(Action action) {
  if (const auto into = recorded_into(); into != nullptr) {
    into->add(*this, std::move(action));
    return Status();
  }
  DLAUNCH_RETURN_IF_ERROR(context_->status());
  queue_now(std::move(action));
  return Status();
}

void FakeStream::queue_now(Action action) {
  {
    const std::scoped_lock lock(mutex_);
    queue_.push_back(std::move(action));
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  }
  changed_.notify_one();
}

void FakeStream::run() {
  while (true) {
    Action action;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (stopping_) return;
      action = std::move(queue_.front());
      queue_.pop_front();
    }
    if (random_() % 256 == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
    if (!context_->broken) action();
  }
}

template <typename Condition>
void FakeStream::wait_until(const Condition& condition) {
  // A thread that only yields gets its turn late where others are busy.
  while (!condition() && !stopping_ && !context_->broken)
    std::this_thread::sleep_for(std::chrono::microseconds(10));
}

}  // namespace dlaunch::testing
