#include "tests/device/on_device.h"

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/deadline.h"
#include "tests/support/soon.h"

namespace dlaunch::testing {
namespace {

Status wait_on_host(const DeviceEvent& event) {
  const Deadline deadline = soon();
  while (!deadline.expired()) {
    const Result<bool> done = event.done();
    if (!done.ok() || *done) return done.status();
    std::this_thread::sleep_for(std::chrono::microseconds(10));
  }
  return Status(StatusCode::kTimeout, "the compute stream does not come to an end");
}

Status finish(DeviceStream& stream) {
  auto event = stream.record();
  return event.ok() ? wait_on_host(**event) : event.status();
}

/// Host memory and its image on the device.
class Images {
 public:
  explicit Images(Device& device) : device_(device) {}
  /// After a call that was refused the stream may still be filling them.
  ~Images() {
    if (!ranges_.empty()) (void)finish(device_.compute());
  }
  Images(Images&&) = default;
  Images& operator=(Images&&) = delete;

  /// All of a call's ranges come first; those that overlap become one.
  void add(const void* data, std::size_t bytes) {
    Range range{static_cast<std::byte*>(const_cast<void*>(data)), bytes};
    for (auto other = ranges_.begin(); other != ranges_.end();) {
      if (range.begin < other->begin + other->bytes && other->begin < range.begin + range.bytes) {
        std::byte* const end = std::max(range.begin + range.bytes, other->begin + other->bytes);
        range.begin = std::min(range.begin, other->begin);
        range.bytes = static_cast<std::size_t>(end - range.begin);
        other = ranges_.erase(other);
      } else {
        ++other;
      }
    }
    ranges_.push_back(range);
  }

  Status load() {
    for (Range& range : ranges_) {
      auto image = device_.allocate(std::max(range.bytes, std::size_t{64}));
      DLAUNCH_RETURN_IF_ERROR(image.status());
      range.image = *image;
      auto pinned = device_.allocate_pinned(std::max(range.bytes, std::size_t{64}));
      DLAUNCH_RETURN_IF_ERROR(pinned.status());
      range.pinned = *pinned;
      std::copy_n(range.begin, range.bytes, static_cast<std::byte*>(range.pinned.get()));
      DLAUNCH_RETURN_IF_ERROR(
          device_.compute().copy(range.image.get(), range.pinned.get(), range.bytes));
    }
    return Status();
  }

  void* of(const void* data, std::size_t bytes) const {
    const auto* const begin = static_cast<const std::byte*>(data);
    for (const Range& range : ranges_) {
      const bool inside = begin >= range.begin && begin + bytes <= range.begin + range.bytes;
      if (inside) return static_cast<std::byte*>(range.image.get()) + (begin - range.begin);
    }
    return nullptr;
  }

  Status store() {
    for (Range& range : ranges_) {
      DLAUNCH_RETURN_IF_ERROR(
          device_.compute().copy(range.pinned.get(), range.image.get(), range.bytes));
    }
    DLAUNCH_RETURN_IF_ERROR(finish(device_.compute()));
    for (Range& range : ranges_) {
      std::copy_n(static_cast<std::byte*>(range.pinned.get()), range.bytes, range.begin);
    }
    return Status();
  }

 private:
  struct Range {
    std::byte* begin = nullptr;
    std::size_t bytes = 0;
    std::shared_ptr<void> image;
    std::shared_ptr<void> pinned;
  };
  Device& device_;
  std::vector<Range> ranges_;
};

/// A call on images of its buffers.
struct ImagedCall {
  ImagedCall(const CollectiveCall& call, Device& device) : images(device), call(call) {
    for (const Buffer& piece : call.pieces) images.add(piece.data, piece.bytes());
    if (call.pieces.empty() && call.kind != CollectiveKind::kBarrier) {
      images.add(call.input.data, call.input.bytes());
      images.add(call.output.data, call.output.bytes());
    }
  }
  Status load() {
    DLAUNCH_RETURN_IF_ERROR(images.load());
    pieces.assign(call.pieces.begin(), call.pieces.end());
    for (Buffer& piece : pieces) piece.data = images.of(piece.data, piece.bytes());
    call.pieces = pieces;
    call.input.data = images.of(call.input.data, call.input.bytes());
    call.output.data = images.of(call.output.data, call.output.bytes());
    return Status();
  }

  Images images;
  CollectiveCall call;
  std::vector<Buffer> pieces;
};

class ImagedWork final : public Work::State {
 public:
  ImagedWork(Work inner, Images images) : inner_(std::move(inner)), images_(std::move(images)) {}

  bool done() const override { return inner_.done(); }
  std::chrono::steady_clock::time_point ended() const override { return inner_.ended(); }
  Status wait(std::chrono::nanoseconds timeout) override {
    const std::scoped_lock lock(mutex_);
    DLAUNCH_RETURN_IF_ERROR(inner_.wait(timeout));
    return std::exchange(stored_, true) ? Status() : images_.store();
  }

 private:
  Work inner_;
  std::mutex mutex_;
  Images images_;
  bool stored_ = false;
};

class OnDevice final : public Communicator {
 public:
  OnDevice(std::unique_ptr<Communicator> inner, std::shared_ptr<Device> device)
      : device_(std::move(device)), inner_(std::move(inner)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }

  Status run(const CollectiveCall& call) override {
    ImagedCall imaged(call, *device_);
    DLAUNCH_RETURN_IF_ERROR(imaged.load());
    DLAUNCH_RETURN_IF_ERROR(inner_->run(imaged.call));
    return imaged.images.store();
  }
  Work start(const CollectiveCall& call) override {
    ImagedCall imaged(call, *device_);
    if (Status status = imaged.load(); !status.ok()) return Work::finished(status);
    Work work = inner_->start(imaged.call);
    return Work(std::make_shared<ImagedWork>(std::move(work), std::move(imaged.images)));
  }
  Status send(ConstBuffer data, int peer, std::uint64_t tag) override {
    return start_send(data, peer, tag).wait();
  }
  Status recv(Buffer data, int peer, std::uint64_t tag, int* sender) override {
    Images images(*device_);
    images.add(data.data, data.bytes());
    DLAUNCH_RETURN_IF_ERROR(images.load());
    const Buffer image(images.of(data.data, data.bytes()), data.count, data.dtype);
    DLAUNCH_RETURN_IF_ERROR(inner_->recv(image, peer, tag, sender));
    return images.store();
  }
  Work start_send(ConstBuffer data, int peer, std::uint64_t tag) override {
    return message(data, [&](void* image) {
      return inner_->start_send(ConstBuffer(image, data.count, data.dtype), peer, tag);
    });
  }
  Work start_recv(Buffer data, int peer, std::uint64_t tag, int* sender) override {
    return message(data, [&](void* image) {
      return inner_->start_recv(Buffer(image, data.count, data.dtype), peer, tag, sender);
    });
  }
  Result<std::unique_ptr<Communicator>> split(int color, int key) override {
    auto part = inner_->split(color, key);
    if (!part.ok() || *part == nullptr) return part;
    return on_device(*std::move(part), device_);
  }
  Result<SharedMemory> allocate(std::size_t bytes) override { return inner_->allocate(bytes); }
  void set_timeout(std::chrono::nanoseconds timeout) override { inner_->set_timeout(timeout); }
  void set_reduce_order(ReduceOrder order) override { inner_->set_reduce_order(order); }
  ReduceOrder reduce_order() const override { return inner_->reduce_order(); }
  void abort(Status why) override { inner_->abort(std::move(why)); }

 private:
  template <typename Start>
  Work message(ConstBuffer data, const Start& start) {
    Images images(*device_);
    images.add(data.data, data.bytes());
    if (Status status = images.load(); !status.ok()) return Work::finished(status);
    Work work = start(images.of(data.data, data.bytes()));
    return Work(std::make_shared<ImagedWork>(std::move(work), std::move(images)));
  }

  const std::shared_ptr<Device> device_;
  const std::unique_ptr<Communicator> inner_;  // goes first
};

}  // namespace

std::unique_ptr<Communicator> on_device(std::unique_ptr<Communicator> inner,
                                        std::shared_ptr<Device> device) {
  return std::make_unique<OnDevice>(std::move(inner), std::move(device));
}

}  // namespace dlaunch::testing
