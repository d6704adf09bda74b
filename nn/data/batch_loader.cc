#include "nn/data/batch_loader.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "nn/data/streams.h"

namespace dlaunch::nn {

class BatchLoader::Worker {
 public:
  Worker(const Dataset& dataset, ImageTransform transform, const BatchLoaderOptions& options)
      : dataset_(dataset),
        transform_(std::move(transform)),
        options_(options),
        slots_(options.depth + 1),
        pixels_(transform_.shape().size()) {
    const std::size_t largest = options_.plan.largest_micro_batch();
    for (MicroBatch& slot : slots_) {
      slot.images.reserve(largest * transform_.shape().size());
      slot.labels.reserve(largest);
      free_.push_back(&slot);
    }
    thread_ = std::thread([this] { run(); });
  }

  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  const MicroBatch& next() {
    std::unique_lock lock(mutex_);
    if (in_use_ != nullptr) free_.push_back(std::exchange(in_use_, nullptr));
    changed_.notify_all();
    changed_.wait(lock, [&] { return !ready_.empty() || error_ != nullptr; });
    if (ready_.empty()) std::rethrow_exception(error_);
    in_use_ = ready_.front();
    ready_.pop_front();
    return *in_use_;
  }

 private:
  void run() {
    try {
      std::size_t first_step = options_.first_step;
      for (std::uint64_t epoch = options_.first_epoch; make_epoch(epoch, first_step); ++epoch)
        first_step = 0;
    } catch (...) {
      const std::lock_guard lock(mutex_);
      error_ = std::current_exception();
      changed_.notify_all();
    }
  }

  /// False if the loader is being destroyed.
  bool make_epoch(std::uint64_t epoch, std::size_t first_step) {
    const std::vector<std::uint32_t> order = epoch_order(dataset_.size(), options_.seed, epoch);
    const StepPlan& plan = options_.plan;
    for (std::size_t step = first_step; step < plan.steps(); ++step) {
      for (std::size_t index = 0; index < plan.micro_batches(step); ++index) {
        MicroBatch* slot = wait_for_slot();
        if (slot == nullptr) return false;
        const SampleRange range = plan.micro_batch(step, index, options_.rank);
        slot->epoch = epoch;
        slot->step = step;
        slot->index = index;
        fill(*slot, std::span(order).subspan(range.begin, range.size()));
        hand_over(slot);
      }
    }
    return true;
  }

  void fill(MicroBatch& batch, std::span<const std::uint32_t> samples) {
    const std::size_t image_size = transform_.shape().size();
    batch.size = samples.size();
    batch.images.resize(samples.size() * image_size);
    batch.labels.resize(samples.size());
    for (std::size_t i = 0; i < samples.size(); ++i) {
      batch.labels[i] = dataset_.label(samples[i]);
      dataset_.copy_image(samples[i], pixels_);
      const std::span<float> image = std::span(batch.images).subspan(i * image_size, image_size);
      if (transform_.augments())
        transform_.augment(pixels_,
                           Generator(options_.seed, random_stream(RandomPurpose::kAugmentation,
                                                                  batch.epoch, samples[i])),
                           image);
      else
        transform_.normalise(pixels_, image);
    }
  }

  MicroBatch* wait_for_slot() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stopped_ || !free_.empty(); });
    if (stopped_) return nullptr;
    MicroBatch* slot = free_.back();
    free_.pop_back();
    return slot;
  }

  void hand_over(MicroBatch* slot) {
    {
      const std::lock_guard lock(mutex_);
      ready_.push_back(slot);
    }
    changed_.notify_all();
  }

  const Dataset& dataset_;
  const ImageTransform transform_;
  const BatchLoaderOptions options_;
  std::vector<MicroBatch> slots_;
  std::vector<std::uint8_t> pixels_;  // one image as stored

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<MicroBatch*> free_;
  std::deque<MicroBatch*> ready_;
  MicroBatch* in_use_ = nullptr;  // handed out by next()
  std::exception_ptr error_;
  bool stopped_ = false;

  std::thread thread_;
};

BatchLoader::BatchLoader(const Dataset& dataset, ImageTransform transform,
                         const BatchLoaderOptions& options)
    : worker_(std::make_unique<Worker>(dataset, std::move(transform), options)) {}

BatchLoader::~BatchLoader() = default;

const MicroBatch& BatchLoader::next() {
  return worker_->next();
}

}  // namespace dlaunch::nn
