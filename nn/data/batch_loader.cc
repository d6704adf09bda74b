#include "nn/data/batch_loader.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "nn/data/augment_image.h"
#include "nn/data/streams.h"
#include "nn/data/unbound_thread.h"
#include "nn/data/worker_pool.h"

namespace dlaunch::nn {

class BatchLoader::Worker {
 public:
  Worker(const Dataset& dataset, const ImageTransform& transform, const BatchLoaderOptions& options)
      : dataset_(dataset),
        transform_(transform),
        options_(options),
        slots_(options.depth + 1),
        pool_(options.pixels ? options.workers : 1),
        scratch_(pool_.size()) {
    for (Scratch& scratch : scratch_) scratch.pixels.resize(transform_.shape().size());
    const std::size_t largest = options_.plan.largest_micro_batch();
    for (MicroBatch& slot : slots_) {
      if (options_.pixels) slot.images.reserve(largest * transform_.shape().size());
      slot.labels.reserve(largest);
      free_.push_back(&slot);
    }
    thread_ = start_unbound_thread([this] { run(); });
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
        const bool made = !slot->labels.empty();
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
    const SampleRange whole = plan.whole_micro_batch(batch.step, batch.index);
    batch.size = range.size();
    batch.shape = shape_of(batch);
    batch.first_place = range.begin;
    batch.last_place = whole.begin + whole.end - 1 - range.begin;
    batch.samples.assign(order.begin() + static_cast<std::ptrdiff_t>(range.begin),
                         order.begin() + static_cast<std::ptrdiff_t>(range.end));
    read_labels(batch.samples, batch.labels);
    if (options_.mix.kind != MixKind::kNone) draw_mix_of(batch, order);
    if (options_.pixels) make_images(batch);
  }

  /// In this step, by the stages of options_.resize.
  ImageShape shape_of(const MicroBatch& batch) const {
    ImageShape shape = transform_.shape();
    const double progress = options_.plan.progress(batch.epoch, batch.step);
    for (const ResizeStage& stage : options_.resize) {
      if (progress >= stage.until_epochs) continue;
      shape.height = shape.width = stage.side;
      break;
    }
    return shape;
  }

  void read_labels(const std::vector<std::uint32_t>& samples, std::vector<std::int32_t>& labels) {
    labels.clear();
    for (const std::uint32_t sample : samples) labels.push_back(dataset_.label(sample));
  }

  /// An image's partner is the one at the same distance from the end of the micro-batch.
  void draw_mix_of(MicroBatch& batch, std::span<const std::uint32_t> order) {
    const std::size_t place = batch.step * options_.plan.micro_batches(0) + batch.index;
    batch.mix =
        draw_mix(options_.mix, batch.shape,
                 Generator(options_.seed, random_stream(RandomPurpose::kMix, batch.epoch, place)));
    batch.own_share = batch.mix.own_share;
    batch.partners.clear();
    for (std::size_t i = 0; i < batch.size; ++i)
      batch.partners.push_back(order[batch.last_place - i]);
    read_labels(batch.partners, batch.partner_labels);
  }

  /// What one worker needs besides.
  struct Scratch {
    std::vector<std::uint8_t> pixels;  // one image as stored
    std::vector<float> partner;        // one image that is to be mixed into another
  };

  void make_images(MicroBatch& batch) {
    const AugmentationPlan plan = plan_of(transform_, batch, options_.plan.samples());
    batch.images.resize(batch.size * batch.shape.size());
    pool_.run(batch.size, [&](std::size_t worker, std::size_t index) {
      make_image(plan, batch, index, scratch_[worker]);
    });
  }

  /// A function of its place alone, whoever makes it.
  void make_image(const AugmentationPlan& plan, MicroBatch& batch, std::size_t i,
                  Scratch& scratch) const {
    const std::size_t image_size = batch.shape.size();
    ImagePlace at = first_place_of(batch, options_.seed);
    at.sample = batch.samples[i];
    at.place = batch.first_place + i;
    const auto image = std::span(batch.images).subspan(i * image_size, image_size);
    load(plan, at, scratch.pixels, image);
    if (batch.partners.empty()) return;
    at.sample = batch.partners[i];
    at.place = batch.last_place - i;
    scratch.partner.resize(image_size);
    load(plan, at, scratch.pixels, scratch.partner);
    apply_mix(batch.mix, batch.shape, scratch.partner, image);
  }

  /// An image as the network is to see it in this epoch.
  void load(const AugmentationPlan& plan, const ImagePlace& at, std::span<std::uint8_t> pixels,
            std::span<float> image) const {
    dataset_.copy_image(at.sample, pixels);
    augment_image(plan, transform_.augments() ? draw_image(plan, at) : ImageDraw{}, pixels, image);
  }

  MicroBatch* wait_for_slot() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stopped_ || !free_.empty(); });
    if (stopped_) return nullptr;
    // In turn, so that options_.resident repeats the same ones in the same order, however fast they
    // are used.
    MicroBatch* slot = free_.front();
    free_.pop_front();
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
  WorkerPool pool_;
  std::vector<Scratch> scratch_;  // of each worker

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<MicroBatch*> free_;
  std::deque<MicroBatch*> ready_;
  MicroBatch* in_use_ = nullptr;  // handed out by next()
  std::exception_ptr error_;
  bool stopped_ = false;

  std::thread thread_;
};

ImagePlace first_place_of(const MicroBatch& batch, std::uint64_t seed) {
  return {.seed = seed, .epoch = batch.epoch, .step = batch.step, .place = batch.first_place};
}

AugmentationPlan plan_of(const ImageTransform& transform, const MicroBatch& batch,
                         std::size_t samples) {
  const bool stored = batch.shape == transform.shape();
  return transform.plan(stored ? 0 : batch.shape.height, samples);
}

BatchLoader::BatchLoader(const Dataset& dataset, const ImageTransform& transform,
                         const BatchLoaderOptions& options)
    : worker_(std::make_unique<Worker>(dataset, transform, options)) {}

BatchLoader::~BatchLoader() = default;

const MicroBatch& BatchLoader::next() {
  return worker_->next();
}

}  // namespace dlaunch::nn
