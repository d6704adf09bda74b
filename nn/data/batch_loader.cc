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
        const bool made = !slot->images.empty();
        slot->epoch = epoch;
        slot->step = step;
        slot->index = index;
        if (!(options_.resident && made)) fill(*slot, order);
        hand_over(slot);
      }
    }
    return true;
  }

  void fill(MicroBatch& batch, std::span<const std::uint32_t> order) {
    const StepPlan& plan = options_.plan;
    const SampleRange range = plan.micro_batch(batch.step, batch.index, options_.rank);
    const std::size_t image_size = transform_.shape().size();
    batch.size = range.size();
    batch.images.resize(batch.size * image_size);
    batch.labels.resize(batch.size);
    for (std::size_t i = 0; i < batch.size; ++i)
      load(order[range.begin + i], batch.epoch, batch.labels[i],
           std::span(batch.images).subspan(i * image_size, image_size));
    if (options_.mix.kind != MixKind::kNone) mix(batch, order, range);
  }

  /// A sample's label and image as the network is to see it in this epoch.
  void load(std::uint32_t sample, std::uint64_t epoch, std::int32_t& label,
            std::span<float> image) {
    label = dataset_.label(sample);
    dataset_.copy_image(sample, pixels_);
    if (transform_.augments())
      transform_.augment(
          pixels_,
          Generator(options_.seed, random_stream(RandomPurpose::kAugmentation, epoch, sample)),
          image);
    else
      transform_.normalise(pixels_, image);
  }

  /// An image's partner is the one at the same distance from the end of the micro-batch.
  void mix(MicroBatch& batch, std::span<const std::uint32_t> order, const SampleRange& range) {
    const StepPlan& plan = options_.plan;
    const std::size_t place = batch.step * plan.micro_batches(0) + batch.index;
    const Mix how =
        draw_mix(options_.mix, transform_.shape(),
                 Generator(options_.seed, random_stream(RandomPurpose::kMix, batch.epoch, place)));
    batch.own_share = how.own_share;
    batch.partner_labels.resize(batch.size);
    partner_.resize(transform_.shape().size());
    const SampleRange whole = plan.whole_micro_batch(batch.step, batch.index);
    for (std::size_t i = 0; i < batch.size; ++i) {
      const std::size_t partner = whole.begin + whole.end - 1 - (range.begin + i);
      load(order[partner], batch.epoch, batch.partner_labels[i], partner_);
      apply_mix(how, transform_.shape(), partner_,
                std::span(batch.images).subspan(i * partner_.size(), partner_.size()));
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
  std::vector<float> partner_;        // one image that is to be mixed into another

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
